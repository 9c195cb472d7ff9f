#include "engine/cli/npy.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <string_view>

#include "heddle/error.h"

namespace heddle::cli {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Code {
  DType dtype;
  std::string_view text;
};
constexpr Code kCodes[] = {{f32, "<f4"},     {f64, "<f8"}, {f16, "<f2"}, {i8, "|i1"},
                           {u8, "|u1"},      {i16, "<i2"}, {i32, "<i4"}, {i64, "<i8"},
                           {boolean, "|b1"}, {u16, "<u2"}, {u32, "<u4"}, {u64, "<u8"}};

[[noreturn]] void fail(const std::string& path, std::string expected, std::string got) {
  throw ParseError({.what = "read " + path,
                    .where = {},
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

/// What follows `key` in the header's dictionary.
std::string_view entry(std::string_view header, std::string_view key, const std::string& path) {
  const std::size_t at = header.find(key);
  const std::size_t colon = at == std::string_view::npos ? at : header.find(':', at);
  if (colon == std::string_view::npos) fail(path, "a header with " + std::string(key), "none");
  const std::size_t first = header.find_first_not_of(' ', colon + 1);
  return first == std::string_view::npos ? std::string_view() : header.substr(first);
}

DType dtype_of_header(std::string_view header, const std::string& path) {
  const std::string_view text = entry(header, "'descr'", path);
  const std::string code(text.substr(1, text.find('\'', 1) - 1));
  for (const Code& known : kCodes) {
    if (code == known.text ||
        (code.size() == 3 && code[0] == '=' && code.substr(1) == known.text.substr(1)))
      return known.dtype;
  }
  throw UnsupportedError({.what = "read " + path,
                          .where = {},
                          .expected = "little-endian floats, integers up to 64 bits or bool",
                          .got = code});
}

Sizes sizes_of_header(std::string_view header, const std::string& path) {
  std::string_view text = entry(header, "'shape'", path);
  const std::size_t close = text.find(')');
  if (text.empty() || text[0] != '(' || close == std::string_view::npos)
    fail(path, "a shape in the header", std::string(text.substr(0, 20)));
  Sizes sizes;
  std::int64_t number = -1;
  for (const char c : text.substr(1, close)) {
    if (c == '-') fail(path, "sizes of at least 0", std::string(text.substr(0, close + 1)));
    if (c >= '0' && c <= '9') {
      if (__builtin_mul_overflow(number < 0 ? 0 : number, std::int64_t{10}, &number) ||
          __builtin_add_overflow(number, c - '0', &number))
        fail(path, "sizes of 64 bits", std::string(text.substr(0, close)));
    } else if (number >= 0) {
      sizes.push_back(number);
      number = -1;
    }
  }
  return sizes;
}

/// Elements in column-major order as row-major ones.
Tensor transposed(const Tensor& columns, const Sizes& sizes) {
  Tensor rows = Tensor::empty(columns.dtype(), sizes);
  const std::size_t width = size_of(columns.dtype());
  Sizes index(sizes.size(), 0);
  for (std::int64_t position = 0; position < rows.count(); ++position) {
    std::int64_t source = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) source = source * sizes[d] + index[d];
    std::memcpy(static_cast<char*>(rows.data()) + static_cast<std::size_t>(position) * width,
                static_cast<const char*>(columns.data()) + static_cast<std::size_t>(source) * width,
                width);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
  return rows;
}

std::uint32_t little_endian(const char* bytes, int count) {
  std::uint32_t value = 0;
  for (int k = count - 1; k >= 0; --k) value = value << 8 | static_cast<unsigned char>(bytes[k]);
  return value;
}

}  // namespace

Tensor read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail(path, "a file", "a folder");
  if (!file) fail(path, "a file that can be read", "none");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < 12 || !bytes.starts_with(kMagic)) fail(path, "a .npy file", "other bytes");
  const int width = bytes[6] == 1 ? 2 : 4;
  const std::size_t start = 8 + static_cast<std::size_t>(width);
  const std::size_t length = little_endian(bytes.data() + 8, width);
  if (length > bytes.size() - start) fail(path, "a whole header", "a truncated file");
  const std::string_view header = std::string_view(bytes).substr(start, length);
  const DType dtype = dtype_of_header(header, path);
  const Sizes sizes = sizes_of_header(header, path);
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) fail(path, "sizes of 64 bits", "larger ones");
  }
  const std::size_t left = bytes.size() - start - length;
  if (static_cast<std::size_t>(count) > left ||
      static_cast<std::size_t>(count) * size_of(dtype) > left)
    fail(path, fmt::format("{} elements", count), fmt::format("{} bytes", left));
  Tensor tensor = Tensor::empty(dtype, sizes);
  if (count != 0)
    std::memcpy(tensor.data(), bytes.data() + start + length,
                static_cast<std::size_t>(count) * size_of(dtype));
  return entry(header, "'fortran_order'", path).starts_with("True") ? transposed(tensor, sizes)
                                                                    : tensor;
}

void write_npy(const std::string& path, const Tensor& given) {
  Tensor tensor = given.is_row_major() ? given : given.clone();
  if (tensor.dtype() == bf16 || is_float8(tensor.dtype())) {
    Tensor wide = Tensor::empty(f32, Sizes(tensor.sizes().begin(), tensor.sizes().end()));
    std::ranges::transform(tensor.to_doubles(), wide.data_as<float>(),
                           [](double number) { return static_cast<float>(number); });
    tensor = wide;
  }
  std::string_view code;
  for (const Code& known : kCodes) {
    if (known.dtype == tensor.dtype()) code = known.text;
  }
  std::string shape;
  for (const std::int64_t size : tensor.sizes()) shape += fmt::format("{},", size);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", code, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << kMagic << '\x01' << '\0' << static_cast<char>(header.size() & 0xff)
       << static_cast<char>(header.size() >> 8) << header;
  file.write(static_cast<const char*>(tensor.data()),
             static_cast<std::streamsize>(static_cast<std::size_t>(tensor.count()) *
                                          size_of(tensor.dtype())));
  if (!file.flush())
    throw ArgumentError(
        {.what = "write " + path, .where = {}, .expected = "a writable file", .got = {}});
}

}  // namespace heddle::cli
