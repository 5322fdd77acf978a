// A decision of the core: records to write, and why. A plain value.

#pragma once

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
