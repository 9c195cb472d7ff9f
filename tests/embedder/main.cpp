#include <cstdio>
#include <heddle/heddle.h>

namespace hd = heddle;

int main() {
  hd::Function layer([](const hd::Tensor& x) { return hd::gelu(x * 2.0f) + 1.0f; });
  hd::Tensor y = layer(hd::Tensor::of({-1.0f, 0.0f, 1.0f}, {3}));
  for (double value : y.to_doubles()) std::printf("%.4f ", value);
  std::printf("\n");
}
