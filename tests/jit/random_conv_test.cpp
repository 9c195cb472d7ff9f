// Convolutions of random shapes, by whichever nest takes them, against the evaluator.
#include <algorithm>
#include <string>

#include "jit/nests/dot_conv.h"
#include "jit/nests/row_conv.h"
#include "tests/jit/one_conv.h"
#include "tests/support/draw.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

struct RandomConv {
  OneConv conv;
  Ints sizes;  ///< of x, but for the channels
  std::vector<std::string> texts;
};

RandomConv random_conv(Draw& draw) {
  RandomConv made;
  OneConv& c = made.conv;
  const auto rank = static_cast<std::size_t>(draw.one_in(3) ? draw(1, 3) : 2);
  c.groups = draw.one_in(3) ? draw(2, 20) : 1;
  c.channels = c.groups > 1 ? draw(1, 5) : draw.one_in(2) ? draw(1, 8) : draw(9, 70);
  c.results = c.groups > 1 ? draw(1, 9) : draw.one_in(2) ? draw(1, 8) : draw(9, 70);
  c.biased = draw.one_in(2);
  c.turned = draw.one_in(2);
  c.fixed = !draw.one_in(6);
  if (draw.one_in(4)) c.step = draw(1, 3);
  if (draw.one_in(4)) c.left = draw(1, 3);
  c.kernel.clear();
  for (Ints* each : {&c.strides, &c.low, &c.high, &c.dilations}) each->clear();
  made.sizes = {draw(1, 2)};
  for (std::size_t d = 0; d < rank; ++d) {
    const bool last = d + 1 == rank;
    const std::int64_t taps = last && draw.one_in(4) ? draw(8, 40) : draw(1, 5);
    const std::int64_t dilation = draw.one_in(4) ? draw(2, 3) : 1;
    const std::int64_t reach = (taps - 1) * dilation + 1;
    c.kernel.push_back(taps);
    c.dilations.push_back(dilation);
    c.strides.push_back(draw.one_in(3) ? draw(2, 4) : 1);
    c.low.push_back(draw.one_in(2) ? taps / 2 : draw(0, reach));
    c.high.push_back(draw.one_in(2) ? taps / 2 : draw(0, reach));
    const std::int64_t least = std::max<std::int64_t>(1, reach - c.low.back() - c.high.back());
    made.sizes.push_back(least + draw(0, last ? 40 : 6));
  }
  const bool open = draw.one_in(3);
  for (std::size_t d = 0; d < made.sizes.size(); ++d)
    made.texts.push_back(open ? "s" + std::to_string(d) : std::to_string(made.sizes[d]));
  c.sizes.clear();
  for (const std::string& text : made.texts) c.sizes.push_back(text.c_str());
  if (!open) made.sizes.clear();
  return made;
}

TEST(RandomConv, IsAsTheEvaluatorSays) {
  // An interpreter runs nests where there is no compiler.
  const std::uint32_t count = HEDDLE_WITH_LLVM == 0 ? 10 : is_nightly() ? 3000 : 60;
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Draw draw(seed);
    const RandomConv c = random_conv(draw);
    const ir::Graph graph = graph_of(c.conv);
    jit::LowerOptions options{.vector_bytes = draw.one_in(2) ? 64 : 32};
    options.library_available = [](std::string_view name, const ir::Node& node) {
      return name == "conv" && !jit::is_row_conv(node) && !jit::is_dot_conv(node);
    };
    jit::Program program = jit::lower(graph, options);
    // What is left to the library is computed as where there is none.
    const auto is_library = [](const jit::ProgramKernel& kernel) { return kernel.nest == nullptr; };
    if (std::ranges::any_of(program.kernels, is_library)) {
      options.library_available = nullptr;
      program = jit::lower(graph, options);
    }
    expect_program_right(graph, program, random_arguments(graph, c.sizes),
                         as_code_of(options.vector_bytes), 1e-5);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::test
