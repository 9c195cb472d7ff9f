// Views of a plan document for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace heddle::cli {

/// Tables: graph, guards, regions, kernels, order (weak edges dashed), events, memory timeline.
std::string plan_text(const nlohmann::ordered_json& plan, const std::string& graph);
/// One page that needs nothing else: graph, kernels with source, schedule by stream, memory map against
/// time, guards; one selection is shown in all of them. Works by mouse and keyboard.
std::string plan_html(const nlohmann::ordered_json& plan, const std::string& graph,
                      const std::string& title);

}  // namespace heddle::cli
