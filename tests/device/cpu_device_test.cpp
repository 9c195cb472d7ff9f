#include "device/cpu/cpu_device.h"

#include <array>
#include <cstdint>
#include <gtest/gtest.h>

#include "heddle/error.h"

namespace heddle::tests {
namespace {

TEST(CpuDevice, CopiesAndFillsAlignedMemory) {
  const auto cpu = device::cpu::open_cpu();
  const auto stream = cpu->make_stream();
  device::Allocation memory(*cpu, 100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 64, 0u);
  std::array<unsigned char, 100> host{};
  cpu->fill(memory.get(), 7, 100, *stream);
  host[3] = 9;
  cpu->copy(memory.get(), host.data(), 10, device::CopyKind::HostToDevice, *stream);
  cpu->copy(host.data(), memory.get(), 100, device::CopyKind::DeviceToHost, *stream);
  EXPECT_EQ(host[3], 9);
  EXPECT_EQ(host[9], 0);
  EXPECT_EQ(host[10], 7);
}

TEST(CpuDevice, SaysWhatItCannotAllocate) {
  const auto cpu = device::cpu::open_cpu();
  EXPECT_EQ(cpu->allocate(0), nullptr);
  EXPECT_THROW(cpu->allocate(~std::size_t{0}), OutOfMemory);
}

TEST(CpuDevice, TakesNoModules) {
  const auto cpu = device::cpu::open_cpu();
  EXPECT_EQ(cpu->properties().arch, "");
  EXPECT_THROW(cpu->load({}), UnsupportedError);
}

}  // namespace
}  // namespace heddle::tests
