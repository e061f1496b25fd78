// quern report: what was measured, as one HTML page that needs nothing else: the times of all programs
// against the cost model's, and a roofline.
#include <algorithm>
#include <cmath>

#include "core/base/target.h"
#include "core/graph/shrink.h"
#include "core/graph/text.h"
#include "tools/timings.h"

namespace quern {

namespace {

struct Measured {
  std::string name, key, target;
  double bytes = 0;  // of inputs and outputs, once each
  double flops = 0;
  DeviceTimings timings;
};

struct Point {
  double x, y;
  std::string title;
  const char* kind;  // a class of the style sheet
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

std::string number(double value, int digits = 3) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

// One chart with logarithmic axes.
class Chart {
 public:
  Chart(std::string title, std::string x_name, std::string y_name)
      : title_(std::move(title)), x_name_(std::move(x_name)), y_name_(std::move(y_name)) {}

  void add(Point point) {
    if (point.x > 0 && point.y > 0) points_.push_back(std::move(point));
  }
  // The roof of a device: y = min(slope * x, top).
  void add_roof(double slope, double top) { roofs_.emplace_back(slope, top); }
  void add_diagonal() { diagonal_ = true; }

  std::string svg() {
    fit();
    std::string out = "<svg viewBox=\"0 0 " + number(kWidth, 6) + " " + number(kHeight, 6) +
                      "\" role=\"img\"><title>" + escaped(title_) + "</title>\n";
    out += grid(true) + grid(false);
    out += label(kLeft + kPlotWidth / 2, kHeight - 6, "middle", x_name_) + "<text transform=\"translate(14 " +
           number(kTop + kPlotHeight / 2) + ") rotate(-90)\" text-anchor=\"middle\">" + escaped(y_name_) +
           "</text>\n";
    if (diagonal_)
      out += line(std::max(x_low_, y_low_), std::max(x_low_, y_low_), std::min(x_high_, y_high_),
                  std::min(x_high_, y_high_), "roof");
    for (const auto& [slope, top] : roofs_) out += roof(slope, top);
    for (const Point& point : points_)
      out += "<circle class=\"" + std::string(point.kind) + "\" cx=\"" + number(x_at(point.x), 6) +
             "\" cy=\"" + number(y_at(point.y), 6) + "\" r=\"4\"><title>" + escaped(point.title) +
             "</title></circle>\n";
    return out + "</svg>\n";
  }

 private:
  static constexpr double kWidth = 760, kHeight = 420, kLeft = 70, kTop = 14, kPlotWidth = 670,
                          kPlotHeight = 360;

  // Whole decades around everything.
  void fit() {
    std::vector<double> xs, ys;
    for (const Point& point : points_) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
    for (const auto& [slope, top] : roofs_) {
      xs.push_back(top / slope);
      ys.push_back(top);
    }
    decades(xs, x_low_, x_high_);
    decades(ys, y_low_, y_high_);
  }
  static void decades(const std::vector<double>& values, double& low, double& high) {
    if (values.empty()) return;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    low = std::pow(10, std::floor(std::log10(*least)));
    high = std::pow(10, std::ceil(std::log10(*most * 1.01)));
  }
  double x_at(double x) const {
    return kLeft + kPlotWidth * std::log(x / x_low_) / std::log(x_high_ / x_low_);
  }
  double y_at(double y) const {
    return kTop + kPlotHeight * (1 - std::log(y / y_low_) / std::log(y_high_ / y_low_));
  }
  static std::string label(double x, double y, const char* anchor, const std::string& text) {
    return "<text x=\"" + number(x, 6) + "\" y=\"" + number(y, 6) + "\" text-anchor=\"" + anchor + "\">" +
           escaped(text) + "</text>\n";
  }
  std::string line(double x0, double y0, double x1, double y1, const char* kind) const {
    return "<line class=\"" + std::string(kind) + "\" x1=\"" + number(x_at(x0), 6) + "\" y1=\"" +
           number(y_at(y0), 6) + "\" x2=\"" + number(x_at(x1), 6) + "\" y2=\"" + number(y_at(y1), 6) +
           "\"/>\n";
  }
  std::string grid(bool x) const {
    std::string out;
    const double low = x ? x_low_ : y_low_, high = x ? x_high_ : y_high_;
    for (double at = low; at <= high * 1.001; at *= 10)
      out += x ? line(at, y_low_, at, y_high_, "grid") +
                     label(x_at(at), kTop + kPlotHeight + 16, "middle", number(at))
               : line(x_low_, at, x_high_, at, "grid") + label(kLeft - 6, y_at(at) + 4, "end", number(at));
    return out;
  }
  std::string roof(double slope, double top) const {
    const double ridge = top / slope, start = std::max(x_low_, y_low_ / slope);
    std::string out =
        line(start, slope * start, std::min(ridge, x_high_), slope * std::min(ridge, x_high_), "roof");
    return ridge < x_high_ ? out + line(ridge, top, x_high_, top, "roof") : out;
  }

  const std::string title_, x_name_, y_name_;
  std::vector<Point> points_;
  std::vector<std::pair<double, double>> roofs_;
  bool diagonal_ = false;
  double x_low_ = 1, x_high_ = 10, y_low_ = 1, y_high_ = 10;
};

Result<std::vector<Measured>> read_measured(Session& session) {
  std::vector<Measured> all;
  Status status = for_each_plan(session, Tier::measured, SIZE_MAX, [&](const wire::ShowReply& shown) {
    const Result<Graph> graph = parse_graph(shown.graph);
    if (!graph) return graph.status().with_context("a stored graph");
    Measured one;
    one.key = to_hex(shown.row.key);
    one.name = one.key.substr(0, 8);
    one.target = shown.row.target;
    one.flops = 2 * work(*graph);
    for (const auto& tensors : {graph->input_descs(), graph->output_descs()})
      for (const TensorDesc& tensor : tensors)
        one.bytes +=
            static_cast<double>(tensor.element_count()) * static_cast<double>(dtype_size(tensor.dtype));
    for (DeviceTimings& timings : join_timings(shown.programs, shown.timings)) {
      one.timings = std::move(timings);
      if (one.timings.best()) all.push_back(one);
    }
    return Status();
  });
  if (!status.ok()) return status;
  return all;
}

std::string times_chart(const std::vector<Measured>& all) {
  Chart chart("measured and modelled times", "by the cost model, us", "measured, cold L2, us");
  chart.add_diagonal();
  for (const Measured& one : all)
    for (const TimedProgram& program : one.timings.programs)
      if (program.timed())
        chart.add({program.modelled_us, program.cold_us,
                   one.name + " " + program_name(program.row) + " on " + one.timings.device + ": " +
                       number(program.modelled_us) + " us modelled, " + number(program.cold_us) +
                       " us measured",
                   program.row.stands     ? "stands"
                   : program.row.baseline ? "baseline"
                                          : "candidate"});
  return chart.svg();
}

std::string roofline(const std::vector<Measured>& all) {
  Chart chart("roofline", "operations a byte of inputs and outputs", "teraflops");
  std::vector<std::string> targets;
  for (const Measured& one : all) {
    if (std::find(targets.begin(), targets.end(), one.target) == targets.end()) targets.push_back(one.target);
    const auto add = [&](const TimedProgram* program, const char* kind) {
      if (!program || !program->timed() || one.bytes <= 0) return;
      const double teraflops = one.flops / program->cold_us / 1e6;
      chart.add({one.flops / one.bytes, teraflops,
                 one.name + " " + program_name(program->row) + " on " + one.timings.device + ": " +
                     number(teraflops) + " teraflops, " + number(one.bytes / program->cold_us / 1e3) +
                     " GB/s",
                 kind});
    };
    add(one.timings.baseline(), "baseline");
    add(one.timings.best(), "stands");
  }
  for (const std::string& name : targets)
    if (const auto target = find_target(name); target.ok())
      chart.add_roof((*target)->dram_gbps / 1e3, (*target)->mma_tflops);
  return chart.svg();
}

std::string tables(const std::vector<Measured>& all) {
  std::string out =
      "<table><tr><th>plan</th><th>device</th><th>baseline us</th><th>best us</th><th>speedup</th>"
      "<th>programs timed</th><th>rank correlation</th><th>regret</th></tr>\n";
  for (const Measured& one : all) {
    const TimedProgram *baseline = one.timings.baseline(), *best = one.timings.best();
    std::vector<std::pair<double, double>> pairs;
    size_t timed = 0;
    for (const TimedProgram& program : one.timings.programs) {
      timed += program.timed();
      if (program.timed() && program.modelled_us > 0)
        pairs.emplace_back(program.modelled_us, program.cold_us);
    }
    const auto correlation = rank_correlation(pairs);
    const auto loss = regret(one.timings);
    const bool both = baseline && baseline->timed();
    for (const std::string& cell :
         {"<tr><td><code>" + one.name + "</code>", escaped(one.timings.device),
          both ? number(baseline->cold_us) : "", number(best->cold_us),
          both ? number(baseline->cold_us / best->cold_us) : "", std::to_string(timed),
          correlation ? number(*correlation, 2) : "", loss ? number(*loss) : ""})
      out += (cell.rfind("<tr>", 0) == 0 ? "" : "<td>") + cell + "</td>";
    out += "</tr>\n";
  }
  return out + "</table>\n";
}

constexpr const char* kHead =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Quern: measured plans</title>\n"
    "<style>body{font:14px sans-serif;max-width:60em;margin:2em auto;color:#222}svg{width:100%}\n"
    "text{font-size:12px;fill:#555}.grid{stroke:#ddd}.roof{stroke:#888;stroke-dasharray:5 3}\n"
    "circle{fill-opacity:.75}.candidate{fill:#b9c4d0}.baseline,.b{fill:#d98032;color:#d98032}\n"
    ".stands,.s{fill:#2b6cb0;color:#2b6cb0}table{border-collapse:collapse}td,th{padding:2px "
    "10px;text-align:right;\n"
    "border-bottom:1px solid "
    "#eee}td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}\n"
    "</style></head><body>\n<h1>Measured plans</h1>\n";

std::string page(const std::vector<Measured>& all) {
  return std::string(kHead) +
         "<h2>Measured times against the cost model's</h2>\n<p><b class=\"s\">the plan that stands</b>, "
         "<b class=\"b\">the baseline</b>, and the other programs; the model is right on the dashed "
         "line.</p>\n" +
         times_chart(all) +
         "<h2>Roofline</h2>\n<p><b class=\"s\">The fastest program</b> and <b class=\"b\">the baseline</b> "
         "of each "
         "graph, under the bandwidth and tensor cores of its target as the cost model has them.</p>\n" +
         roofline(all) + "<h2>Plans</h2>\n" + tables(all) + "</body></html>\n";
}

int run_report(const Arguments& arguments) {
  Result<Session> session = open_session(arguments);
  if (!session) return fail(arguments, session.status());
  const Result<std::vector<Measured>> all = read_measured(*session);
  if (!all) return fail(arguments, all.status());
  if (all->empty())
    return fail(arguments, Status(ErrorCode::NOT_FOUND, "no plan was measured yet; see: quern help tune"));
  if (arguments.operands().empty()) {
    if (arguments.json())
      print_json({{"html", page(*all)}});
    else
      print_text(page(*all));
    return kExitOk;
  }
  const std::string path = arguments.operands()[0];
  if (Status status = write_file(path, page(*all)); !status.ok()) return fail(arguments, status);
  if (arguments.json()) print_json({{"file", path}, {"plans", all->size()}});
  return kExitOk;
}

}  // namespace

const Command Commands::kReportCommand = {
    "report",
    "[FILE]",
    0,
    1,
    "measured plans as an HTML page with charts",
    "Writes one HTML page that needs nothing else, to FILE or to standard output: the measured times of\n"
    "all programs against those of the cost model, a roofline of the fastest programs and the baselines,\n"
    "and a table of all plans that were measured.\n",
    true,
    {},
    run_report,
};

}  // namespace quern
