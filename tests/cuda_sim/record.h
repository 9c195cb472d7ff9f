// What the host asked of the device, in order, as text.
#pragma once

#include <map>
#include <string>

#include "tests/cuda_sim/machine.h"

namespace heddle::sim {

/// A list of lines. Streams and events are numbered as they come up: s0, e0. Under mutex().
///
///   s0 launch exp_sin                a kernel; "… idle" where a graph's node is not enabled
///   s0 in 32 / out 4 / move 16       a copy of so many bytes to the device, to the host, on the device
///   s0 fill 4
///   s0 record e0 / s1 wait e0
///   s0 graph                         then its nodes, with those that each comes after:
///     0 in 32
///     1 launch exp after 0
///   s0 synchronize                   the host waits for the stream; "synchronize e0", "synchronize all"
class Record {
 public:
  static Record& instance();

  /// Forgets what there is, and begins or ends listing.
  void listen(bool on);
  const std::string& text() const { return text_; }

  void given(const Stream* stream, const Operation& operation);
  void synchronize(const Stream* stream);
  void synchronize(const Firing* firing);
  void synchronize_all();

 private:
  void line(const std::string& text);
  std::string name(const Stream* stream);
  std::string name(const Firing* firing);
  static std::string describe(const Operation& operation);

  bool on_ = false;
  std::string text_;
  std::map<const Stream*, std::size_t> streams_;
  std::map<const Firing*, std::size_t> events_;
};

}  // namespace heddle::sim
