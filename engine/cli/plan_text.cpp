#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/cli/plan_views.h"
#include "engine/cli/table.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string joined(const Json& list) {
  std::string text;
  for (const Json& item : list)
    text += (text.empty() ? "" : " ") + (item.is_string() ? item.get<std::string>() : item.dump());
  return text;
}

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string indented(const std::string& text) {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    result += "  " + text.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return result;
}

std::string guards(const Json& plan) {
  std::string text = "Guards\n";
  for (const Json& guard : plan.at("guards")) text += "  " + guard.get<std::string>() + "\n";
  return text + "\n";
}

std::string regions(const Json& plan) {
  std::vector<Row> rows;
  for (const Json& region : plan.at("regions"))
    rows.push_back(
        {cell(region.at("id")), region.at("options").dump(), joined(region.at("nodes"))});
  return rows.empty() ? "" : "Regions\n" + table({"region", "options", "nodes"}, rows) + "\n";
}

std::string kernels(const Json& plan) {
  std::vector<Row> rows;
  for (const Json& kernel : plan.at("kernels"))
    rows.push_back({cell(kernel.at("name")), cell(kernel.at("kind")), joined(kernel.at("reads")),
                    joined(kernel.at("writes")), joined(kernel.at("nodes"))});
  std::string text =
      "Kernels\n" + table({"kernel", "kind", "reads", "writes", "nodes"}, rows) + "\n";
  for (const Json& kernel : plan.at("kernels")) {
    const std::string source = kernel.value("source", std::string());
    if (!source.empty())
      text += fmt::format("Source of {}\n{}\n", cell(kernel.at("name")), indented(source));
  }
  return text;
}

std::string order(const Json& plan) {
  std::vector<Row> rows;
  for (const Json& step : plan.at("steps")) {
    std::string strong;
    std::string weak;
    for (const Json& edge : step.at("edges")) {
      const bool is_weak = edge.at("kind") == "weak";
      std::string& list = is_weak ? weak : strong;
      if (!list.empty()) list += ' ';
      list += (is_weak ? "- -" : "") + edge.at("from").dump();
    }
    rows.push_back({cell(step.at("index")), cell(step.at("kernel")), cell(step.at("stream")),
                    joined(step.at("waits_for")), strong, weak});
  }
  return "Order\n" +
         table({"step", "kernel", "stream", "waits for", "after", "after (weak)"}, rows) + "\n";
}

/// What is queued as graphs of the device, and what is not.
std::string captures(const Json& plan) {
  std::vector<Row> rows;
  for (const Json& part : plan.value("captures", Json::array()))
    rows.push_back({joined(part.at("steps")),
                    part.at("captured") == true ? "graph" : "step by step",
                    cell(part.at("reason"))});
  return rows.empty() ? "" : "Captures\n" + table({"steps", "queued", "because it"}, rows) + "\n";
}

/// Steps that are run for some entries of a batch after others.
std::string batches(const Json& plan) {
  std::vector<Row> rows;
  for (const Json& batch : plan.value("batches", Json::array()))
    rows.push_back(
        {fmt::format("{} to {}", cell(batch.at("first_step")), cell(batch.at("last_step"))),
         cell(batch.at("times")), cell(batch.at("entries")), cell(batch.at("workers"))});
  return rows.empty()
             ? ""
             : "Batches\n" + table({"steps", "times", "entries each time", "workers"}, rows) + "\n";
}

/// What happens to memory, and launches, in order.
std::string events(const Json& plan) {
  if (!plan.contains("events")) return "";
  std::vector<Row> rows;
  for (const Json& event : plan.at("events"))
    rows.push_back({cell(event.at("step")), cell(event.at("kind")), cell(event.at("value")),
                    event.at("kind") == "launch" ? "" : cell(event.at("bytes"))});
  return "Events\n" + table({"step", "event", "value", "bytes"}, rows) + "\n";
}

/// One line a buffer of the arena: '#' where it is live.
std::string timeline(const Json& plan) {
  constexpr std::size_t kWidth = 60;
  const std::size_t steps = std::max<std::size_t>(plan.at("steps").size(), 1);
  std::vector<Row> rows;
  for (const Json& buffer : plan.at("buffers")) {
    Row row{cell(buffer.at("value")), cell(buffer.at("role")), cell(buffer.at("bytes")),
            cell(buffer.at("offset")), cell(buffer.at("alias_of"))};
    std::string line;
    if (!buffer.at("offset").is_null() && !buffer.at("first_step").is_null()) {
      const std::size_t columns = std::min(steps, kWidth);
      line.assign(columns, '.');
      const std::size_t first = buffer.at("first_step").get<std::size_t>() * columns / steps;
      const std::size_t last = buffer.at("last_step").get<std::size_t>() * columns / steps;
      for (std::size_t k = first; k <= last && k < columns; ++k) line[k] = '#';
    }
    row.push_back(line);
    rows.push_back(std::move(row));
  }
  return fmt::format("Memory: {} bytes at most, {} needed at least\n", cell(plan.at("peak_bytes")),
                     cell(plan.at("lower_bound_bytes"))) +
         table({"value", "role", "bytes", "offset", "alias of", "steps"}, rows);
}

/// The plans that steps run, each in full once.
std::string nested(const Json& plan) {
  std::string text;
  for (const Json& step : plan.at("steps")) {
    if (!step.contains("nested")) continue;
    for (const Json& inner : step.at("nested")) {
      const bool is_new = inner.contains("id");
      text += fmt::format("\nNested plan {} of step {}: {}number {}\n", cell(inner.at("graph")),
                          cell(step.at("index")), is_new ? "" : "see ",
                          cell(inner.at(is_new ? "id" : "same_as")));
      if (is_new) text += indented(kernels(inner) + order(inner) + timeline(inner) + nested(inner));
    }
  }
  return text;
}

}  // namespace

std::string plan_text(const Json& plan, const std::string& graph) {
  return "Graph\n" + indented(graph) + "\n" + guards(plan) + regions(plan) + kernels(plan) +
         order(plan) + batches(plan) + captures(plan) + events(plan) + timeline(plan) +
         nested(plan);
}

}  // namespace heddle::cli
