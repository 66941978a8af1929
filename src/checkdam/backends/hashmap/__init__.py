"""The hashmap backend: keyed state as Python objects in dicts. The fastest backend, limited by memory."""
