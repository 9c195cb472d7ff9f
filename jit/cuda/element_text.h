// What a thread does with several elements of a tile that lie side by side in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "jit/cuda/statement_emitter.h"
#include "jit/nest.h"

namespace heddle::jit::cuda {

/// Statements on elements that one axis numbers, of which a thread takes `width()` neighbours at once: what it reads and writes of
/// memory is then one access each, where addresses are aligned and all neighbours are there.
class ElementText {
 public:
  /// @param body   on one element
  /// @param most   elements at once
  /// @param inner  loads from this buffer are not from memory, but give what `of_lane` of text() says
  ElementText(const Nest& nest, base::Symbol axis, const Block& body, int most, NestBufferId inner);

  /// 1: nothing lies side by side.
  int width() const { return width_; }
  /// Whether addresses are aligned in lines 0 and 1 that `outer` numbers, as text: elsewhere neighbours are better left to neighbouring
  /// threads.
  std::string are_aligned(base::Symbol outer) const;
  /// The lines, indented by `depth` steps.
  /// @param first    the axis' first value of the thread, as text
  /// @param left     how many elements there are from there on, as text
  /// @param prepare  lines before those on neighbours, or empty
  /// @param of_lane  the inner buffer's element number `lane` of the neighbours, and that where axis has its value, as text
  std::string text(StatementEmitter& statements, int depth, const std::string& first,
                   const std::string& left, const std::string& prepare, const std::string& of_lane,
                   const std::string& of_axis) const;

 private:
  struct Access {
    const void* statement;
    NestBufferId buffer;
    const SymExpr* index;
    bool is_store;
  };

  const Nest& nest_;
  base::Symbol axis_;
  const Block& body_;
  NestBufferId inner_;
  std::vector<Access> accesses_;
  int width_ = 1;
};

}  // namespace heddle::jit::cuda
