// The page of `heddle plan --html`, as the files under page/ are at build time.
#pragma once

#include <string_view>

namespace heddle::cli {

/// HTML with places {{title}}, {{style}}, {{data}} (JSON: {plan, graph}) and {{script}}.
std::string_view plan_page();
std::string_view plan_page_style();
std::string_view plan_page_script();

}  // namespace heddle::cli
