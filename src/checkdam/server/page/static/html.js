// Rendering: Preact with htm's tagged templates. Whatever is put into a template is text, never markup.

import { h, render } from "./vendor/preact/preact.module.js";
import htm from "./vendor/htm/htm.module.js";

export const html = htm.bind(h);
export { render };
export {
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
  useId,
} from "./vendor/preact/hooks.module.js";
