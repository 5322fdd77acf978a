// Measures whether a machine is in use, from Linux's files.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "cli/volunteer/limits.h"

namespace atl::cli {

class MachineUse {
 public:
  // `root`: where dev, proc and sys are; "" on a real machine.
  explicit MachineUse(std::string root = "") : root_(std::move(root)) {}

  // Measures all of Facts except the transfers. A file that cannot be read does
  // not count against training. A share of processors is a mean over about half
  // a minute of calls, 0 at the first.
  Facts Read(absl::Time now);

  // The same for a part.
  //
  // When a key was pressed in a terminal, or a PS/2 device interrupted.
  // InfinitePast: never seen.
  absl::Time LastTouch(absl::Time now);
  // True if a battery discharges the machine: it has one, and no mains that is
  // online.
  bool OnBattery() const;

 private:
  struct Processors {
    int64_t busy = 0;  // Clock ticks since the boot, of all processors.
    int64_t all = 0;
    int64_t own = 0;  // This process's ticks.
  };

  std::optional<Processors> ReadProcessors() const;
  void UpdateShare(absl::Time now);

  const std::string root_;
  std::optional<int64_t> input_interrupts_;
  absl::Time interrupted_time_ = absl::InfinitePast();
  std::optional<Processors> last_;
  absl::Time last_time_;
  double share_ = 0;
};

}  // namespace atl::cli
