#!/usr/bin/env python3
"""The manual page and the completions of shells, made from the table of commands that `quern help --json` prints and from `quernd --help`.

usage: manual.py QUERN QUERND quern.1 quernd.8 bash zsh fish
"""
import json
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.split("\n"))


def spelled(option):
    """-t, --target TARGET"""
    value = f" {option['value']}" if option["value"] else ""
    return (f"-{option['letter']}, " if option["letter"] else "") + f"--{option['name']}{value}"


def common_to_all(commands):
    first = commands[0]["options"]
    return [option for option in first if all(option in command["options"] for command in commands)]


def page(name, section, version, summary, body):
    return f'.TH {name.upper()} {section} "" "Quern {version}" "Quern"\n.SH NAME\n{name} \\- {roff(summary)}\n{body}'


def listed(rows):
    return "".join(f".TP\n.B {roff(name)}\n{roff(text)}\n" for name, text in rows)


def quern_page(table, topics, version):
    common = common_to_all(table["commands"])
    body = ".SH SYNOPSIS\n.B quern\n.I COMMAND\n[OPTION]... [OPERAND]...\n.SH DESCRIPTION\n"
    body += "Asks the daemon quernd for GPU kernels of tensor graphs, looks into its cache, and runs and checks graphs.\n"
    body += ".SH OPTIONS OF EVERY COMMAND\n" + listed((spelled(option), option["help"]) for option in common) + ".SH COMMANDS\n"
    for command in table["commands"]:
        body += f".SS quern {roff(command['name'] + ' ' + command['operands'])}\n{roff(command['help'].strip())}\n"
        body += listed((spelled(option), option["help"]) for option in command["options"] if option not in common)
    for title, text in topics.items():
        body += f".SH {title}\n.nf\n{roff(text.rstrip())}\n.fi\n"
    return page("quern", 1, version, "GPU kernels for tensor graphs, from the local kernel cache daemon", body + ".SH SEE ALSO\n.BR quernd (8)\n")


def quernd_page(text, version):
    settings = re.findall(r"^  (--\S+) +(.*)$", text, re.MULTILINE)
    before, after = text.split("  --", 1)[0], text.rsplit(settings[-1][1], 1)[1]
    body = f".SH SYNOPSIS\n.B quernd\n[--NAME=VALUE]...\n.SH DESCRIPTION\n{roff(before.split(chr(10), 2)[2].strip())}\n"
    body += f".SH SETTINGS\n{listed(settings)}.SH SIGNALS AND EXIT STATUS\n{roff(after.strip())}\n.SH SEE ALSO\n.BR quern (1)\n"
    return page("quernd", 8, version, "the kernel cache daemon of Quern", body)


def words(options):
    return " ".join(["--" + option["name"] for option in options] + ["-" + option["letter"] for option in options if option["letter"]])


VALUES = {"TARGET": "$(quern help targets 2>/dev/null | awk 'NR > 1 { print $1 }')", "TIER": "baseline modelled measured"}


def bash(table):
    names = " ".join(command["name"] for command in table["commands"])
    takes = "|".join(sorted({"--" + o["name"] for c in table["commands"] for o in c["options"] if o["value"] not in (None, *VALUES)}))
    rows = "\n".join(f"    {c['name']}) words='{words(c['options'])}' ;;" for c in table["commands"])
    cases = "".join(
        "    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n".format(
            "|".join(sorted({"--" + o["name"] for c in table["commands"] for o in c["options"] if o["value"] == value}
                            | {"-" + o["letter"] for c in table["commands"] for o in c["options"] if o["value"] == value and o["letter"]})), choices)
        for value, choices in VALUES.items())
    return f"""# Completion of quern for bash.
_quern() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{names}' -- "$word"))
    return
  fi
  case $before in
{cases}    {takes}) COMPREPLY=($(compgen -f -- "$word")); return ;;
  esac
  case ${{COMP_WORDS[1]}} in
{rows}
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  elif [[ ${{COMP_WORDS[1]}} == help ]]; then
    COMPREPLY=($(compgen -W '{names} ops schedule targets environment exit-codes' -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _quern quern
"""


def zsh(table):
    def quoted(text):
        return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    commands = "\n".join(f"    '{c['name']}:{quoted(c['summary'])}'" for c in table["commands"])
    rows = ""
    for command in table["commands"]:
        specs = " ".join("'--{}[{}]{}'".format(o["name"], quoted(o["help"]), f":{o['value']}:_files" if o["value"] else "") for o in command["options"])
        rows += f"    {command['name']}) _arguments {specs} '*:file:_files' ;;\n"
    return f"""#compdef quern
local -a commands
commands=(
{commands}
)
if ((CURRENT == 2)); then
  _describe command commands
else
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{rows}  esac
fi
"""


def fish(table):
    def quoted(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    lines = ["# Completion of quern for fish."]
    for command in table["commands"]:
        lines.append(f"complete -c quern -n __fish_use_subcommand -f -a {command['name']} -d {quoted(command['summary'])}")
        for option in command["options"]:
            short = f" -s {option['letter']}" if option["letter"] else ""
            value = " -r" if option["value"] else ""
            lines.append(f"complete -c quern -n '__fish_seen_subcommand_from {command['name']}' -l {option['name']}{short}{value} -d {quoted(option['help'])}")
    return "\n".join(lines) + "\n"


def main():
    quern, quernd, *files = sys.argv[1:]
    table = json.loads(output(quern, "help", "--json"))
    version = json.loads(output(quern, "version", "--json"))["version"]
    topics = {"ENVIRONMENT": output(quern, "help", "environment"), "EXIT STATUS": output(quern, "help", "exit-codes")}
    texts = [quern_page(table, topics, version), quernd_page(output(quernd, "--help"), version), bash(table), zsh(table), fish(table)]
    for file, text in zip(files, texts, strict=True):
        with open(file, "w", encoding="utf-8") as out:
            out.write(text)


main()
