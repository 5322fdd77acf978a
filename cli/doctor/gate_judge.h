// Judges the answers of a gate, of the services behind it and of the server of
// the run's data. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/rpc/tls_stream/link_load.h"
#include "cli/doctor/check.h"
#include "worker/api/run_data.h"

namespace atl::cli {

Check JudgeDns(absl::string_view host,
               const absl::StatusOr<std::vector<std::string>>& addresses);

// Judges how long a connection to `address` took. `id` is "tcp" or "proxy".
Check JudgeConnection(absl::string_view id, absl::string_view address,
                      const absl::StatusOr<absl::Duration>& connected);

// `asked` is the error of an exchange of messages, whose refusals are OK.
Check JudgeTls(const absl::Status& asked, absl::string_view pin);

// FAILED: the gate refuses the token. WARN: the gate is busy, or the run has
// ended.
Check JudgeToken(const absl::StatusOr<v1::TokenState>& token, absl::Time now);

// The certificate of an enrolled island. WARN: it has expired, but the gate
// still renews it. FAILED: the gate does not.
Check JudgeCertificate(absl::Time end, absl::Time now);

// FAILED: this program lacks features (base/features) that the run needs.
// WARN: the versions differ. `theirs` empty: not known.
Check JudgeVersion(absl::string_view ours, absl::string_view theirs,
                   uint64_t missing_features);

// Facts about the run's data.
struct DataFacts {
  absl::Status manifest;  // Reading the manifest; data by URL only.
  // The data that an island would find at `place`, on this machine.
  absl::StatusOr<worker::LocalData> found = worker::LocalData();
  // The data that an island would open here.
  absl::StatusOr<worker::DataPlace> place = worker::DataPlace();
};
// FAILED: the island may not open the path that the run names, or finds no data
// or other data there; or the manifest cannot be read, or is another one.
Check JudgeData(const v1::DataSpec& data, const DataFacts& facts);

// A service that was dialled.
struct Dialled {
  std::string address;
  absl::Status status;
  // As ServiceFacts::admits_islands.
  std::optional<bool> admits_islands = std::nullopt;
};
// FAILED: one of them does not answer, or admits no enrolled island. `id` is
// "coordinator" or "servers".
Check JudgeServices(absl::string_view id, const std::vector<Dialled>& dialled);

// The link to the gate. WARN: below 1 Mb/s, or it was not measured. `id` is
// "link_up" or "link_down".
Check JudgeLink(absl::string_view id,
                const absl::StatusOr<rpc::LinkLoad>& load);

// Bytes per second; 0 if too little came to tell.
double ComputeRate(const rpc::LinkLoad& load);

}  // namespace atl::cli
