// The last revision of every log, and the check that appends continue it.
//
// Pure. Thread-compatible.

#ifndef COORDINATOR_STORE_REVISIONS_H_
#define COORDINATOR_STORE_REVISIONS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

class Revisions {
 public:
  // The last revision of a log; 0 if it has none.
  int64_t Last(absl::string_view run_id) const;

  // Takes in a record that is stored; they come in the order of revisions.
  void Set(absl::string_view run_id, int64_t revision);

  // OK if every record follows the one before it in its log.
  //
  // INTERNAL: one does not; nothing is changed in any case.
  absl::Status Check(absl::Span<const LogAppend> appends) const;

  // Takes in appends that are stored.
  void Advance(absl::Span<const LogAppend> appends);

 private:
  std::map<std::string, int64_t, std::less<>> last_;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_REVISIONS_H_
