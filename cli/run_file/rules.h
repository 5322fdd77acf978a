// The rules of a run file's keys: values of keys that it does not give, ranges,
// data by URL (`[data] url`), and models that only their trainer knows
// (`[model] architecture = "external"`).
//
// Pure. Thread-safe.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"

namespace atl::cli {

// The values of an empty run file.
v1::RunSpec DefaultRunSpec();

// Completes `spec`, which was read over DefaultRunSpec(): clears defaults that
// the chosen optimizers do not read, and sets what follows from other values
// (run_file.h has the list). `given` has the keys of the file and its preset,
// such as "inner.beta1".
void FillInDefaults(const std::set<std::string>& given, v1::RunSpec* spec);

// The fault of `value` for the key `path` ("inner.beta1"): "must be at least 1,
// is 0". Empty: no fault. A value that is not finite is a fault for every key.
std::string RangeFault(absl::string_view path, double value);

// Clears what a preset or the defaults say about other data, for a file that
// gives data.url. `own`: the file's keys.
void DropOtherData(const std::set<std::string>& own, v1::DataSpec* data);

// Clears what a preset says about elastic rounds, for a file that gives
// schedule.timing = "strict", and a min_quorum above the file's
// island_count_min. `own`: the file's keys.
void DropOtherRounds(const std::set<std::string>& own,
                     v1::ScheduleSpec* schedule);

// Faults of the keys of [data], one sentence each.
std::vector<std::string> FindDataFaults(const v1::DataSpec& data);

// Returns why the file of an external model must not give `key` ("inner.beta1")
// itself; empty: it may.
std::string ExternalKeyFault(absl::string_view key);

// The fault of the keys that bound the unit of weight of an external model;
// empty: none. `own` as in MakeExternal.
std::string WeightUnitFault(const std::set<std::string>& own,
                            v1::WeightUnit unit);

// Makes `spec`, which was read over its preset and DefaultRunSpec(), one of an
// external model. Clears what only Atoll's own trainer reads. The data becomes
// external, and weights by samples become weights by tokens. sequence_length
// and batch_size that are not in `own`, the keys of the file without its
// preset, become 1048576 and 1. sequence_length is 1 if the unit of weight is
// not tokens.
void MakeExternal(const std::set<std::string>& own, v1::RunSpec* spec);

}  // namespace atl::cli
