#!/usr/bin/env python3
"""Writes a C++ file with functions that return the text of files: embed.py OUTPUT NAMESPACE (FUNCTION= FILE...)..."""

import pathlib
import sys

DELIMITER = "embedded"  # of the raw strings; no embedded file may contain `)embedded"`


def definition(name: str, files: list[str]) -> str:
    texts = [pathlib.Path(file).read_text() for file in files]
    if any(f'){DELIMITER}"' in text for text in texts):
        sys.exit(f"embed.py: {name}: contains the raw string delimiter")
    literals = "\n".join(f'R"{DELIMITER}({text}){DELIMITER}"' for text in texts)
    return f"std::string_view {name}() {{\n  static constexpr std::string_view kText =\n{literals};\n  return kText;\n}}\n"


def main() -> None:
    output, namespace, *arguments = sys.argv[1:]
    functions: dict[str, list[str]] = {}
    for argument in arguments:
        if argument.endswith("="):
            files = functions[argument[:-1]] = []
        else:
            files.append(argument)
    body = "\n".join(definition(name, files) for name, files in functions.items())
    pathlib.Path(output).write_text(
        f"// Made by tools/build/embed.py.\n#include <string_view>\n\nnamespace {namespace} {{\n\n{body}\n}}\n")


main()
