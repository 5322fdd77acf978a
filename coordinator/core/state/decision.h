// What the core decides: records to write, and why.
//
// A plain value. Pure. Thread-compatible.

#ifndef COORDINATOR_CORE_STATE_DECISION_H_
#define COORDINATOR_CORE_STATE_DECISION_H_

#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"

namespace atl::coordinator {

// Records to write, in order, and why; or none, and what is waited for.
struct Decision {
  std::vector<storage::v1::Record> records;
  std::string reason;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_STATE_DECISION_H_
