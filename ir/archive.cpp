#include "ir/archive.h"

#include <cstring>
#include <unordered_map>

#include "base/check.h"
#include "ir/op.h"

namespace heddle::ir {

void fields(base::ArchiveWriter& archive, const Literal& literal) {
  const Literal row_major = literal.contiguous();
  archive(row_major.dtype(), row_major.sizes());
  archive.raw(row_major.unaligned_data(), row_major.bytes());
}

void fields(base::ArchiveReader& archive, Literal& literal) {
  DType dtype = DType::F32;
  Sizes sizes;
  archive(dtype, sizes);
  const std::int64_t count = element_count(sizes);
  if (count < 0) base::ArchiveReader::fail();
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  const char* elements = archive.take(bytes);
  literal = Literal(dtype, std::move(sizes));
  if (bytes != 0) std::memcpy(literal.data(), elements, bytes);
}

void fields(base::ArchiveWriter& /*archive*/, const GraphRef& ref) {
  HD_CHECK(ref.graph == nullptr, ref.name);
}

void fields(base::ArchiveReader& /*archive*/, GraphRef& /*ref*/) { base::ArchiveReader::fail(); }

void fields(auto& archive, Like<Annotation> auto& annotation) {
  auto& [value] = annotation;
  archive(value);
}
void fields(auto& archive, const Assumption& assumption) {
  auto& [predicate, reason, location] = assumption;
  archive(predicate, reason, location.file, location.line);
}

namespace {

/// Nested graphs are written once, however many paths of calls lead to one.
using KnownGraphs = std::unordered_map<const Graph*, std::size_t>;

class GraphWriter {
 public:
  GraphWriter(base::ArchiveWriter& archive,
              const std::function<std::string(const Literal&)>& literal_key, KnownGraphs& known)
      : archive_(archive), literal_key_(literal_key), known_(known) {}

  void write(const Graph& graph) {
    archive_(graph.name(), graph.nodes().size());
    for (const NodePtr& node : graph.nodes()) {
      numbers_.emplace(node.get(), numbers_.size());
      write(*node);
      if (const Literal* value = graph.parameter(node.get())) write(*value);
    }
    for (std::size_t k = 0; k < graph.inputs().size(); ++k) {
      write(graph.inputs()[k]);
      archive_(graph.input_label(k));
    }
    archive_(graph.outputs().size());
    for (std::size_t k = 0; k < graph.outputs().size(); ++k) {
      write(graph.outputs()[k]);
      archive_(graph.output_label(k));
    }
    list(graph.assumptions());
    archive_(graph.write_backs().size());
    for (const Graph::WriteBack& write_back : graph.write_backs()) {
      write(write_back.target);
      write(write_back.source);
    }
  }

 private:
  void write(const Node& node) {
    archive_(std::string(node.op_name()), node.inputs().size(), node.after().size());
    for (const Value& input : node.inputs()) write(input);
    for (const Value& first : node.after()) write(first);
    archive_(node.attrs().size());
    for (const auto& [name, attr] : node.attrs()) {
      archive_(name);
      write(attr);
    }
    list(node.outputs());
    archive_(node.annotations());
    list(node.names());
    archive_(node.location().file, node.location().line);
    list(node.late_requirements());
  }
  void write(const Value& value) {
    archive_(value ? numbers_.at(value.node) + 1 : std::size_t{0}, value.index);
  }
  void write(const Attr& attr) {
    archive_(kind_of(attr));
    if (const auto* literal = std::get_if<LiteralPtr>(&attr)) return write(**literal);
    const auto* ref = std::get_if<GraphRef>(&attr);
    if (ref == nullptr) return archive_(attr);
    const auto [known, is_new] = known_.try_emplace(ref->graph.get(), known_.size());
    archive_(ref->name, known->second);
    if (is_new) GraphWriter(archive_, literal_key_, known_).write(*ref->graph);
  }
  void write(const Literal& literal) {
    constexpr std::size_t kSmallBytes = 64;
    const bool is_small = literal.bytes() <= kSmallBytes;
    archive_(is_small);
    if (is_small) return archive_(literal);
    archive_(literal.dtype(), literal.sizes(), literal.strides(), literal_key_(literal));
  }
  template <typename T>
  void list(std::span<const T> values) {
    archive_(values.size());
    for (const T& value : values) archive_(value);
  }

  base::ArchiveWriter& archive_;
  const std::function<std::string(const Literal&)>& literal_key_;
  KnownGraphs& known_;
  std::unordered_map<const Node*, std::size_t> numbers_;
};

}  // namespace

void write_graph(base::ArchiveWriter& archive, const Graph& graph,
                 const std::function<std::string(const Literal&)>& literal_key) {
  KnownGraphs known;
  GraphWriter(archive, literal_key, known).write(graph);
}

}  // namespace heddle::ir
