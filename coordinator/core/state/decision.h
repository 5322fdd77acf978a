// A decision of the core: records to write, and why. A plain value.

#ifndef COORDINATOR_CORE_STATE_DECISION_H_
#define COORDINATOR_CORE_STATE_DECISION_H_

#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"

namespace atl::coordinator {

// Without records, `reason` says what is waited for.
struct Decision {
  std::vector<storage::v1::Record> records;
  std::string reason;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_STATE_DECISION_H_
