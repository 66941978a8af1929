// Pages are hash routes, so links are real links and the browser's history works without a server's help.

import { address } from "./api.js";
import { useEffect, useState } from "./html.js";

export const link = (...parts) => `#/${address(...parts)}`;

/** The parts of the address behind `#/`. */
export function parse(hash) {
  return hash
    .replace(/^#?\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part; // typed by hand: shown as it is
      }
    });
}

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parse(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

export function goTo(hash) {
  location.hash = hash;
}
