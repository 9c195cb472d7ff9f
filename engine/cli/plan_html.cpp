#include <nlohmann/json.hpp>

#include "engine/cli/plan_page.h"
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
    else
      result += c;
  }
  return result;
}

/// JSON that may stand inside a script element: no '<' is left, so nothing ends the element early.
std::string embedded(const Json& document) {
  std::string result;
  for (const char c : document.dump(-1, ' ', false, Json::error_handler_t::replace))
    if (c == '<')
      result += "\\u003c";
    else
      result += c;
  return result;
}

/// `page` with each "{{name}}" replaced, in the order of the page.
std::string filled(std::string_view page,
                   std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  std::string result;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t open = std::min(page.find("{{", at), page.size());
    result += page.substr(at, open - at);
    at = open;
    for (const auto& [name, text] : fields) {
      const std::string place = "{{" + std::string(name) + "}}";
      if (!page.substr(at).starts_with(place)) continue;
      result += text;
      at += place.size();
      break;
    }
    if (at == open && at < page.size()) result += page[at++];
  }
  return result;
}

}  // namespace

std::string plan_html(const Json& plan, const std::string& graph, const std::string& title) {
  return filled(plan_page(), {{"title", escaped(title)},
                              {"style", std::string(plan_page_style())},
                              {"script", std::string(plan_page_script())},
                              {"data", embedded({{"plan", plan}, {"graph", graph}})}});
}

}  // namespace heddle::cli
