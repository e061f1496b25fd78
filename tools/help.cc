#include "tools/help.h"

#include "core/base/target.h"
#include "core/lang/attrs.h"
#include "core/lang/op.h"
#include "core/schedule/schedule.h"
#include "tools/output.h"

namespace quern {

namespace {

std::string options_text(std::span<const Option> options) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Option& option : options) {
    std::string name = option.letter ? std::string("  -") + option.letter + ", " : "      ";
    name += std::string("--") + option.name + (option.value ? std::string(" ") + option.value : "");
    rows.emplace_back(name, option.help);
  }
  return facts_text(rows);
}

std::string exit_codes_text() {
  std::string text;
  for (const ExitCodeInfo& info : all_exit_codes())
    text += "  " + std::to_string(info.code) + "  " + info.meaning + "\n";
  return text;
}

constexpr const char* kEnvironment =
    "QUERN_SOCKET     the daemon's socket; else $XDG_RUNTIME_DIR/quern/quernd.sock, else "
    "/tmp/quern-UID/quernd.sock\n"
    "QUERN_CACHE_DIR  the cache; else $XDG_CACHE_HOME/quern, else ~/.cache/quern\n"
    "QUERN_CONFIG     the configuration; else $XDG_CONFIG_HOME/quern/quern.conf, else "
    "~/.config/quern/quern.conf\n"
    "QUERN_NO_START   set to anything but 0: no program starts a daemon\n"
    "QUERN_RECORD     a folder: programs write the graphs that they ask for there, with a manifest for quern "
    "prewarm\n"
    "QUERN_STRICT     a folder: programs have nothing compiled, and write what is not in the cache there\n"
    "QUERN_DAEMON     the program that is started when no daemon runs; else quernd beside quern, else in "
    "$PATH\n"
    "QUERN_NVRTC      the CUDA compiler library, a file or its folder; else the usual places (quern doctor "
    "lists them)\n"
    "QUERN_LIBCUDA    the CUDA driver library; else libcuda.so.1\n"
    "CXX              the C++ compiler of the emulator; else g++\n";

std::string targets_text() {
  Table table({"TARGET", "COMPUTE CAPABILITY", ">SHARED MEMORY A BLOCK"});
  for (const Target& target : all_targets())
    table.add({target.name, std::to_string(target.major) + "." + std::to_string(target.minor),
               human_bytes(target.shared_bytes_per_block)});
  return table.text();
}

// ---- operators ----

const Attrs kNoAttrs;  // for_each_attr wants some

std::string operands_of(const OpInfo& op) {
  const std::string low = std::to_string(op.min_arity);
  return op.min_arity == op.max_arity ? low : low + " to " + std::to_string(op.max_arity);
}

// "shape, [axis], [dtype]": those in brackets may be left out.
std::string attributes_of(const OpInfo& op) {
  std::string text;
  for_each_attr(kNoAttrs, [&](const AttrInfo& info, const auto&) {
    if (!(op.attrs & attr_bit(info.id))) return;
    const bool required = op.required_attrs & attr_bit(info.id);
    text +=
        (text.empty() ? "" : ", ") + (required ? std::string(info.name) : "[" + std::string(info.name) + "]");
  });
  return text;
}

const char* attr_kind_text(AttrKind kind) {
  switch (kind) {
    case AttrKind::ints:
      return "integer or list";
    case AttrKind::number:
      return "number";
    case AttrKind::dtype:
      return "dtype";
    case AttrKind::flag:
      return "true or false";
  }
  return "?";
}

std::string result_of(const OpInfo& op) {
  if (op.kind != OpKind::elementwise) return "";
  switch (op.result) {
    case ResultRule::same:
      return "promoted";
    case ResultRule::floating:
      return "float";
    case ResultRule::truth:
      return "bool";
    case ResultRule::select:
      return "promoted, of operands 2 and 3";
  }
  return "";
}

std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (char c : text) cell += c == '|' ? std::string("\\|") : std::string(1, c);
  return cell;
}

}  // namespace

std::string overview_text() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command* command : all_commands())
    rows.emplace_back(std::string("  ") + command->name + (*command->operands ? " " : "") + command->operands,
                      command->summary);
  return "quern: GPU kernels for tensor graphs, from the local kernel cache daemon\n\nusage: quern COMMAND "
         "[OPTION]... [OPERAND]...\n\n" +
         facts_text(rows) +
         "\nquern help COMMAND explains a command, its options and what it prints.\n"
         "quern help ops, targets, environment and exit-codes list what their names say.\n\nexit codes:\n" +
         exit_codes_text();
}

std::string command_text(const Command& command) {
  std::string text = std::string("usage: quern ") + command.name + (*command.operands ? " " : "") +
                     command.operands + " [OPTION]...\n\n" + command.help + "\n";
  if (!command.options.empty()) text += "options:\n" + options_text(command.options) + "\n";
  if (command.asks_daemon) text += "the daemon:\n" + options_text(daemon_options()) + "\n";
  return text + "always:\n" + options_text(common_options()) +
         "\nquern help exit-codes lists the exit codes.\n";
}

std::string operators_text() {
  Table table({"OPERATOR", "OPERANDS", "ATTRIBUTES", "MEANING"});
  for (const OpInfo& op : all_ops()) table.add({op.text, operands_of(op), attributes_of(op), op.doc});
  Table attributes({"ATTRIBUTE", "VALUE", "MEANING"});
  for_each_attr(kNoAttrs, [&](const AttrInfo& info, const auto&) {
    attributes.add({info.name, attr_kind_text(info.kind), info.doc});
  });
  return table.text() + "\nAttributes in brackets may be left out.\n\n" + attributes.text();
}

std::string operators_markdown() {
  std::string text =
      "# Operators\n\nMade by `quern help ops --markdown` from `core/lang/ops.def` and "
      "`core/lang/attrs.def`; a test compares. "
      "[language.md](language.md) says\nhow a graph is written. Attributes in brackets may be left out.\n\n"
      "## Elementwise\n\nOperands broadcast as in numpy. \"promoted\" and \"float\" are explained in "
      "[language.md](language.md).\n\n"
      "| operator | operands | result | meaning |\n|---|---|---|---|\n";
  for (const OpInfo& op : all_ops())
    if (op.kind == OpKind::elementwise)
      text += std::string("| `") + op.text + "` | " + operands_of(op) + " | " + result_of(op) + " | " +
              markdown_cell(op.doc) + " |\n";
  text += "\n## Others\n\n| operator | operands | attributes | meaning |\n|---|---|---|---|\n";
  for (const OpInfo& op : all_ops())
    if (op.kind != OpKind::elementwise)
      text += std::string("| `") + op.text + "` | " + operands_of(op) + " | " + attributes_of(op) + " | " +
              markdown_cell(op.doc) + " |\n";
  text += "\n## Attributes\n\n| attribute | value | meaning |\n|---|---|---|\n";
  for_each_attr(kNoAttrs, [&](const AttrInfo& info, const auto&) {
    text += std::string("| `") + info.name + "` | " + attr_kind_text(info.kind) + " | " +
            markdown_cell(info.doc) + " |\n";
  });
  return text;
}

namespace {

struct Topic {
  const char* name;
  std::string (*text)();
};
const Topic kTopics[] = {
    {"ops", operators_text},         {"schedule", schedule_field_table},
    {"targets", targets_text},       {"environment", [] { return std::string(kEnvironment); }},
    {"exit-codes", exit_codes_text},
};

Json option_json(const Option& option) {
  return {{"name", option.name},
          {"letter", option.letter ? Json(std::string(1, option.letter)) : Json()},
          {"value", option.value ? Json(option.value) : Json()},
          {"help", option.help}};
}

// The whole table: what the manual and the completions of shells are made from.
Json commands_json() {
  Json rows = Json::array();
  for (const Command* command : all_commands()) {
    Json options = Json::array();
    for (const Option& option : options_of(*command)) options.push_back(option_json(option));
    rows.push_back({{"name", command->name},
                    {"operands", command->operands},
                    {"summary", command->summary},
                    {"help", command->help},
                    {"options", options}});
  }
  return rows;
}

int run_help(const Arguments& arguments) {
  const std::string topic = arguments.operands().empty() ? "" : arguments.operands()[0];
  std::string text = topic.empty() ? overview_text() : "";
  std::vector<std::string> names;
  for (const Topic& row : kTopics) {
    names.push_back(row.name);
    if (topic == row.name) text = row.text();
  }
  for (const Command* command : all_commands()) {
    names.push_back(command->name);
    if (topic == command->name) text = command_text(*command);
  }
  if (arguments.has("markdown")) {
    if (topic != "ops")
      return fail(arguments,
                  Status(ErrorCode::INVALID_ARGUMENT, "only \"quern help ops\" can print Markdown"));
    text = operators_markdown();
  }
  if (text.empty())
    return fail(arguments, Status(ErrorCode::INVALID_ARGUMENT,
                                  "there is no help on \"" + topic + "\"" + suggestion(topic, names)));
  if (arguments.json() && topic.empty())
    print_json({{"topic", topic}, {"text", text}, {"commands", commands_json()}});
  else if (arguments.json())
    print_json({{"topic", topic}, {"text", text}});
  else
    print_text(text);
  return kExitOk;
}

}  // namespace

const Command Commands::kHelpCommand = {
    "help",
    "[COMMAND | TOPIC]",
    0,
    1,
    "this list, a command, or a topic",
    "Explains a command, or one of the topics ops (the operators of the language), schedule (the fields of\n"
    "a schedule), targets, environment and exit-codes.\n",
    false,
    {{"markdown", 0, nullptr, "print the operators as docs/OPERATORS.md has them"}},
    run_help,
};

}  // namespace quern
