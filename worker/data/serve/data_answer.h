// Makes a data server's answer to a request: decides whether the peer may read,
// which bytes it gets, and which headers go with them.
//
// Thread-safe. Opens files; sends nothing.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/object_store/object_url.h"
#include "worker/data/serve/served_files.h"

namespace atl::worker {

// Decides whose requests are answered.
struct DataAccess {
  std::string island_ca_pem;          // Signs the data tokens.
  std::vector<std::string> run_uids;  // Empty: every run of the island CA.
};

// The parts of a request that count; an absent header is empty.
struct DataRequest {
  std::string method;
  std::string path;  // Decoded; begins with "/".
  std::string authorization;
  std::string range;
  std::string if_range;
  std::string if_match;
};

struct DataAnswer {
  int code = 200;
  std::string caller;  // As of CheckDataAccess; empty: it may not read.
  HttpHeaders headers;
  std::string text;  // The body, if `file` is not open.
  ServedFile file;   // The body is [begin, end) of it.
  int64_t begin = 0;
  int64_t end = 0;
};

// The name of the enrolment that `authorization`, a bearer token, is of, if it
// may read.
// UNAUTHENTICATED: it is none, or not a valid one. PERMISSION_DENIED: it is for
// another run.
absl::StatusOr<std::string> CheckDataAccess(const DataAccess& access,
                             const std::string& authorization, absl::Time now);

// 200 and 206 with bytes; 401 and 403 without access, whatever the path; 404,
// 405, 412, 416; 500 if a file is not the published one. The ranges
// "bytes=A-" and "bytes=A-B" are served; any other gives the whole file.
DataAnswer AnswerDataRequest(const DataRequest& request,
                             const ServedFiles& files, const DataAccess& access,
                             absl::Time now);

}  // namespace atl::worker
