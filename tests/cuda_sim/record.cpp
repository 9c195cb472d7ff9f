#include "tests/cuda_sim/record.h"

#include "tests/cuda_sim/entry.h"

namespace heddle::sim {

Record& Record::instance() {
  static Record record;
  return record;
}

void Record::listen(bool on) {
  on_ = on;
  text_.clear();
  streams_.clear();
  events_.clear();
}

void Record::line(const std::string& text) { text_ += text + "\n"; }

std::string Record::name(const Stream* stream) {
  return "s" + std::to_string(streams_.emplace(stream, streams_.size()).first->second);
}

std::string Record::name(const Firing* firing) {
  return "e" + std::to_string(events_.emplace(firing, events_.size()).first->second);
}

std::string Record::describe(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::Launch:
      return "launch " + operation.kernel->name;
    case Operation::Kind::Copy: {
      const char* to_or_from = operation.to_device ? "in " : "out ";
      const bool inside = operation.to_device && operation.from_device;
      return (inside ? "move " : to_or_from) + std::to_string(operation.bytes);
    }
    case Operation::Kind::Fill:
      return "fill " + std::to_string(operation.bytes);
    default:
      return "graph";
  }
}

void Record::given(const Stream* stream, const Operation& operation) {
  if (!on_) return;
  if (operation.kind == Operation::Kind::Record)
    return line(name(stream) + " record " + name(operation.firing.get()));
  if (operation.kind == Operation::Kind::Wait)
    return line(name(stream) + " wait " + name(operation.firing.get()));
  line(name(stream) + " " + describe(operation));
  for (std::size_t k = 0; k < operation.nodes.size(); ++k) {
    const GraphNode& node = operation.nodes[k];
    std::string text = "  " + std::to_string(k) + " " + describe(node.operation);
    if (!node.enabled) text += " idle";
    for (std::size_t a = 0; a < node.after.size(); ++a)
      text += (a == 0 ? " after " : ",") + std::to_string(node.after[a]);
    line(text);
  }
}

void Record::synchronize(const Stream* stream) {
  if (on_) line(name(stream) + " synchronize");
}

void Record::synchronize(const Firing* firing) {
  if (on_) line("synchronize " + name(firing));
}

void Record::synchronize_all() {
  if (on_) line("synchronize all");
}

}  // namespace heddle::sim

EXPORT void heddle_cuda_sim_listen(int on) {
  const std::lock_guard lock(heddle::sim::mutex());
  heddle::sim::Record::instance().listen(on != 0);
}
EXPORT const char* heddle_cuda_sim_recorded() {
  const std::lock_guard lock(heddle::sim::mutex());
  return heddle::sim::Record::instance().text().c_str();
}
