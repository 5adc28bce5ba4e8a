#!/usr/bin/env python3
"""Writes han.txt: the Han characters in the order of the root collation of ICU, by radical and stroke.

Needs PyICU (Debian: python3-icu). The order depends on ICU's version; CouchDB's packages contain 72.1.
    /usr/bin/python3 han.py > han.txt
"""

import icu

LINE = 64

collator = icu.Collator.createInstance(icu.Locale.getRoot())
unified = icu.UProperty.UNIFIED_IDEOGRAPH
characters = [chr(c) for c in range(0x110000) if icu.Char.hasBinaryProperty(c, unified)]
characters.sort(key=collator.getSortKey)
for start in range(0, len(characters), LINE):
    print("".join(characters[start : start + LINE]))
