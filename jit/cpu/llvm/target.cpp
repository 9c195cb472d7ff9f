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

/// The target with those features of the host that `has` says, by LLVM's names.
CodegenTarget target_with(std::string cpu, const Instructions& host, std::int64_t vector_bytes,
                          bool amx, const std::function<bool(llvm::StringRef)>& has) {
  CodegenTarget target;
  target.cpu = std::move(cpu);
  constexpr std::int64_t kVectorBytesOfAmx = 64;
  amx = amx && (vector_bytes == 0 || vector_bytes == kVectorBytesOfAmx) && has("amx-tile") &&
        may_use_amx();
  std::vector<std::string> features;
  for (const auto& feature : host) {
    const llvm::StringRef name = feature.first();
    const bool is_there = has(name) && (amx || !name.starts_with("amx"));
    features.push_back((is_there ? "+" : "-") + name.str());
  }
  std::sort(features.begin(), features.end());
  for (const std::string& feature : features)
    target.features += (target.features.empty() ? "" : ",") + feature;
  std::int64_t widest = 16;
  if (has("avx2") && has("fma")) widest = 32;
  if (has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq")) widest = 64;
  target.vector_bytes = vector_bytes == 0 ? widest : std::min(widest, vector_bytes);
  return target;
}

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
  const Instructions host = llvm::sys::getHostCPUFeatures();
  return target_with(llvm::sys::getHostCPUName().str(), host, vector_bytes, amx,
                     [&](llvm::StringRef name) { return host.lookup(name); });
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
  const Instructions host = llvm::sys::getHostCPUFeatures();
  const Instructions wanted = instructions_of(name);
  for (const auto& feature : host) {
    const llvm::StringRef set = feature.first();
    if (wanted.lookup(set) && !feature.second && !is_for_others(set))
      refuse("one whose instructions this processor has, which lacks " + set.str());
  }
  return target_with(name, host, vector_bytes, amx, [&](llvm::StringRef feature) {
    return wanted.lookup(feature) && !is_for_others(feature);
  });
#else
  refuse("nothing: processors by name are those of x86-64");
  return host_target(vector_bytes, amx);
#endif
}

}  // namespace heddle::jit::cpu
