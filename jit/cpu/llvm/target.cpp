// The processors that code is made for: the host, or one by name whose instructions the host has.
#include <algorithm>
#include <array>
#include <functional>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/X86TargetParser.h>
#include <vector>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "heddle/error.h"
#include "jit/cpu/llvm/codegen.h"

namespace heddle::jit::cpu {
namespace {

/// A process has AMX's registers when it asks for them, once, and the system has room for them wherever a signal may come.
bool may_use_amx() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr int kTileData = 18;
  static const bool is_granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return is_granted;
#else
  return false;
#endif
}

/// Sets of instructions by LLVM's names: whether a processor has them.
using Instructions = llvm::StringMap<bool>;

/// The target that has `instructions` and no others of those that are named there.
CodegenTarget target_with(std::string cpu, const Instructions& instructions,
                          std::int64_t vector_bytes) {
  CodegenTarget target;
  target.cpu = std::move(cpu);
  std::vector<std::string> features;
  for (const auto& feature : instructions)
    features.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(features.begin(), features.end());
  for (const std::string& feature : features)
    target.features += (target.features.empty() ? "" : ",") + feature;
  const auto has = [&](const char* name) { return instructions.lookup(name); };
  std::int64_t widest = 16;
  if (has("avx2") && has("fma")) widest = 32;
  if (has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq")) widest = 64;
  target.vector_bytes = vector_bytes == 0 ? widest : std::min(widest, vector_bytes);
  return target;
}

/// Whether code for vectors of so many bytes takes AMX's registers, where the processor has them.
bool takes_amx(const Instructions& instructions, std::int64_t vector_bytes, bool amx) {
  constexpr std::int64_t kVectorBytesOfAmx = 64;
  return amx && (vector_bytes == 0 || vector_bytes == kVectorBytesOfAmx) &&
         instructions.lookup("amx-tile") && may_use_amx();
}

void leave_out(Instructions& instructions, const std::function<bool(llvm::StringRef)>& left_out) {
  for (auto& feature : instructions)
    if (left_out(feature.first())) feature.second = false;
}

bool is_of_amx(llvm::StringRef feature) { return feature.starts_with("amx"); }

#if defined(__x86_64__)
/// Instructions that code for tensors never has: virtual machines often hide them.
bool is_for_others(llvm::StringRef feature) {
  static constexpr std::array<const char*, 38> kOthers{
      "cldemote", "clflushopt", "clwb",        "clzero",    "enqcmd",  "fsgsbase", "hreset",
      "invpcid",  "kl",         "lwp",         "movdir64b", "movdiri", "mwaitx",   "pconfig",
      "pku",      "prefetchi",  "prefetchwt1", "prfchw",    "ptwrite", "rdpid",    "rdpru",
      "rdrnd",    "rdseed",     "rtm",         "serialize", "sgx",     "shstk",    "sse4a",
      "tbm",      "tsxldtrk",   "uintr",       "usermsr",   "waitpkg", "wbnoinvd", "widekl",
      "xsavec",   "xsaveopt",   "xsaves"};
  return std::ranges::find(kOthers, feature) != kOthers.end();
}

/// Those of a processor, with all that they need.
Instructions instructions_of(llvm::StringRef cpu) {
  llvm::SmallVector<llvm::StringRef, 64> listed;
  llvm::X86::getFeaturesForCPU(cpu, listed);
  Instructions instructions;
  instructions["64bit"] = true;  // which the list leaves out
  for (const llvm::StringRef feature : listed) {
    instructions[feature] = true;
    llvm::X86::updateImpliedFeatures(feature, true, instructions);
  }
  return instructions;
}
#endif

}  // namespace

bool has_feature(const CodegenTarget& target, std::string_view feature) {
  const std::string wanted = ",+" + std::string(feature) + ",";
  return ("," + target.features + ",").find(wanted) != std::string::npos;
}

std::string CodegenTarget::key() const {
  return cpu + " " + features + " " + std::to_string(vector_bytes);
}

CodegenTarget host_target(std::int64_t vector_bytes, bool amx) {
  Instructions host = llvm::sys::getHostCPUFeatures();
  if (!takes_amx(host, vector_bytes, amx)) leave_out(host, is_of_amx);
  return target_with(llvm::sys::getHostCPUName().str(), host, vector_bytes);
}

CodegenTarget named_target(const std::string& name, std::int64_t vector_bytes, bool amx) {
  const auto refuse = [&](std::string expected) {
    throw OptionError({.what = "EngineOptions::cpu, or HEDDLE_CPU",
                       .where = {},
                       .expected = std::move(expected),
                       .got = name});
  };
#if defined(__x86_64__)
  if (llvm::X86::parseArchX86(name, /*Only64Bit=*/true) == llvm::X86::CK_None)
    refuse("a 64-bit processor by LLVM's name, such as x86-64-v3, x86-64-v4 or znver4");
  // Nothing of the host goes into the target but whether it has matrix registers for the process: else its key is the same on all of them.
  Instructions wanted = instructions_of(name);
  if (!wanted.lookup("f16c"))
    refuse("a processor that converts numbers of 16 bits (F16C), as x86-64-v3 does");
  if (wanted.lookup("avx512f") && !wanted.lookup("avx512vl"))
    refuse("a processor that has AVX-512 for vectors of all lengths, or none of it");
  const Instructions host = llvm::sys::getHostCPUFeatures();
  if (!takes_amx(wanted, vector_bytes, amx)) leave_out(wanted, is_of_amx);
  leave_out(wanted, is_for_others);
  for (const auto& feature : wanted)
    if (feature.second && host.contains(feature.first()) && !host.lookup(feature.first()))
      refuse("one whose instructions this processor has, which lacks " + feature.first().str());
  return target_with(name, wanted, vector_bytes);
#else
  refuse("nothing: processors by name are those of x86-64");
  return host_target(vector_bytes, amx);
#endif
}

}  // namespace heddle::jit::cpu
