#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/cli/plan_views.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string cell(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return escaped(value.get<std::string>());
  if (!value.is_array()) return escaped(value.dump());
  std::string text;
  for (const Json& item : value) text += (text.empty() ? "" : " ") + cell(item);
  return text;
}

/// A table with one column for each of `keys`.
std::string table(const Json& rows, std::initializer_list<const char*> keys) {
  std::string text = "<table><tr>";
  for (const char* key : keys) text += fmt::format("<th>{}</th>", key);
  text += "</tr>\n";
  for (const Json& row : rows) {
    text += "<tr>";
    for (const char* key : keys) text += fmt::format("<td>{}</td>", cell(row.at(key)));
    text += "</tr>\n";
  }
  return text + "</table>\n";
}

std::string kernels(const Json& plan) {
  std::string text;
  for (const Json& kernel : plan.at("kernels"))
    text += fmt::format(
        "<details><summary><b>{}</b> ({}) reads {} writes {}</summary><pre>{}</pre></details>\n",
        cell(kernel.at("name")), cell(kernel.at("kind")), cell(kernel.at("reads")),
        cell(kernel.at("writes")), escaped(kernel.value("source", std::string())));
  return text;
}

/// Steps to the right, arena bytes upwards: one box a buffer.
std::string memory_map(const Json& plan) {
  constexpr double kWidth = 960;
  constexpr double kHeight = 320;
  const double steps = static_cast<double>(std::max<std::size_t>(plan.at("steps").size(), 1));
  const double peak = std::max(plan.at("peak_bytes").get<double>(), 1.0);
  std::string text = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"arena bytes against steps\"><rect width=\"{0}\" height=\"{1}\" "
      "fill=\"#f4f4f4\"/>\n",
      kWidth, kHeight);
  int shade = 0;
  for (const Json& buffer : plan.at("buffers")) {
    if (buffer.at("offset").is_null() || buffer.at("first_step").is_null()) continue;
    const double first = buffer.at("first_step").get<double>();
    const double last = buffer.at("last_step").get<double>();
    const double bytes = buffer.at("bytes").get<double>();
    const double top = buffer.at("offset").get<double>() + bytes;
    text += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"hsl({}, 55%, "
        "70%)\" "
        "stroke=\"#444\"><title>{}: {} bytes at {}, steps {} to {}</title></rect>\n",
        first / steps * kWidth, kHeight - top / peak * kHeight, (last - first + 1) / steps * kWidth,
        bytes / peak * kHeight, shade, cell(buffer.at("value")), cell(buffer.at("bytes")),
        cell(buffer.at("offset")), cell(buffer.at("first_step")), cell(buffer.at("last_step")));
    shade = (shade + 47) % 360;
  }
  return text + "</svg>\n";
}

constexpr const char* kStyle =
    "body{font:14px/1.4 sans-serif;margin:2em;max-width:1100px}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:2px 8px;text-align:left}"
    "pre{background:#f4f4f4;padding:8px;overflow:auto}";

}  // namespace

std::string plan_html(const Json& plan, const std::string& graph, const std::string& title) {
  std::string guards;
  for (const Json& guard : plan.at("guards")) guards += fmt::format("<li>{}</li>\n", cell(guard));
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>"
      "<style>{1}</style></head><body>\n<h1>{0}</h1>\n"
      "<h2>Graph</h2><pre>{2}</pre>\n<h2>Guards</h2><ul>{3}</ul>\n<h2>Regions</h2>{4}"
      "<h2>Kernels</h2>\n{5}<h2>Order</h2>{6}"
      "<h2>Memory</h2><p>{7} bytes at most, {8} needed at least. Steps run to the right, "
      "addresses upwards.</p>\n{9}{10}</body></html>\n",
      escaped(title), kStyle, escaped(graph), guards,
      table(plan.at("regions"), {"id", "options", "nodes"}), kernels(plan),
      table(plan.at("steps"), {"index", "kernel", "stream", "waits_for", "edges"}),
      cell(plan.at("peak_bytes")), cell(plan.at("lower_bound_bytes")), memory_map(plan),
      table(plan.at("buffers"),
            {"value", "role", "bytes", "offset", "first_step", "last_step", "alias_of"}));
}

}  // namespace heddle::cli
