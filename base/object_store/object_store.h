// Objects behind a URL: files, an S3 bucket, or an HTTPS server.
//
// Names are relative to the store's URL: "a/b" in s3://bucket/run is the key
// run/a/b. The empty name is the URL itself, which may be one object.
//
// Thread-compatible, with its writers: one call at a time. A sink must not call
// the store that calls it. Open one store for each thread.
//
// Errors of every call, unless stated otherwise. Messages name the URL without
// its query, the HTTP status, the server's code and what to do.
//
//   INVALID_ARGUMENT     the name, the range or an option is wrong
//   NOT_FOUND            no such object, bucket or directory
//   UNAUTHENTICATED      no credentials were found, or no valid data token
//   PERMISSION_DENIED    the server or the system refuses; wrong credentials
//   RESOURCE_EXHAUSTED   the disk is full, or an answer exceeds its bound
//   DATA_LOSS            the disk cannot be read; an answer makes no sense
//   UNAVAILABLE          no success within the retry budget
//   CANCELLED            the options' `cancelled` returned true
//   UNIMPLEMENTED        the store or the server cannot do this
//   FAILED_PRECONDITION  the server refuses for another reason

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"

namespace atl {

struct ObjectInfo {
  std::string name;        // Relative to the store's URL.
  int64_t size_bytes = 0;  // >= 0.
  // Changes with the content. Empty if the server gives none.
  std::string etag;
  // Stat sets it: in hex, as the object's writer said; empty: not known.
  std::string sha256;
};

// Which bytes to read.
struct ReadRange {
  int64_t offset = 0;             // >= 0.
  std::optional<int64_t> length;  // >= 0; none: to the end.
  std::string etag;               // Not empty: the object must have this etag.
};

// The end of `range` in an object of `size_bytes`. Pure.
// INVALID_ARGUMENT: a negative number. OUT_OF_RANGE: the object ends before the
// range does. `object` names it in messages.
absl::StatusOr<int64_t> GetRangeEnd(const ReadRange& range, int64_t size_bytes,
                                    absl::string_view object);

// Takes the next bytes, which are valid during the call. May block: the
// transfer waits. An error ends the call with this error.
using ObjectSink = absl::FunctionRef<absl::Status(absl::string_view)>;

enum class WriteMode {
  kReplace,  // Replaces an object of the same name.
  kCreate,   // Fails if there is one.
};

// An object that is being written. It appears whole, at Commit, or not at all.
// Thread-compatible. After an error only destruction is right.
class ObjectWriter {
 public:
  // Removes what was written, as far as possible, unless Commit succeeded.
  virtual ~ObjectWriter() = default;

  // Before the first Append: the SHA-256 of all bytes, in hex. Stat then gives
  // it, if the store can keep it.
  virtual void set_sha256(std::string sha256) {}

  // Appends `bytes`. Blocks while they are sent.
  virtual absl::Status Append(absl::string_view bytes) = 0;

  // Makes the object appear. Durable on return.
  //
  // ALREADY_EXISTS: kCreate, and there is an object of this name.
  // ABORTED: another writer of this name finished meanwhile; write it again.
  virtual absl::Status Commit() = 0;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Objects whose name begins with `prefix`, sorted by name. Files whose
  // writers have not committed are left out.
  //
  // RESOURCE_EXHAUSTED: there are more than `count_max`.
  virtual absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                                       int64_t count_max) = 0;

  virtual absl::StatusOr<ObjectInfo> Stat(absl::string_view name) = 0;

  // Passes the bytes of `range` to `sink`, in order, in pieces of at most
  // 512 KiB. After an error the sink has a beginning of them.
  //
  // OUT_OF_RANGE: the object ends before the range does. ABORTED: the object
  // has another etag than `range`, or was replaced during the call. Errors of
  // `sink` as they are.
  virtual absl::Status Read(absl::string_view name, const ReadRange& range,
                            ObjectSink sink) = 0;

  // Begins to write an object. The store must outlive the writer. kCreate may
  // report ALREADY_EXISTS here or at Commit.
  virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(
      absl::string_view name, WriteMode mode) = 0;

  // Removes an object, durably. OK if it does not exist. Directories stay.
  virtual absl::Status Remove(absl::string_view name);

  // Removes the bytes that killed writers of names with this prefix left. Such
  // a writer that lives fails. Incomplete uploads that the server does not list
  // stay.
  virtual absl::Status RemoveUnfinished(absl::string_view prefix);

  // The URL of `name`, without a query: for messages.
  virtual std::string GetUrl(absl::string_view name) const = 0;
};

// Writes a whole object. Tries again if another writer of the name finished
// meanwhile. Errors as Write's, Append's and Commit's.
absl::Status PutObject(ObjectStore& store, absl::string_view name,
                       absl::string_view bytes, WriteMode mode);

// Reads a whole object. RESOURCE_EXHAUSTED: it has more than `bytes_max` bytes.
absl::StatusOr<std::string> GetObject(ObjectStore& store,
                                      absl::string_view name,
                                      int64_t bytes_max);

// Proves, by two writes of the unused name `probe`, that kCreate never replaces
// an object. Removes the probe. Writes nothing if the store refuses removals.
//
// FAILED_PRECONDITION: it does: the server ignores `If-None-Match`.
absl::Status CheckCreatesOnce(ObjectStore& store, absl::string_view probe);

// SHA-256 over the bytes of `range`, without holding them. Errors as Read's.
absl::StatusOr<codec::Sha256Digest> HashObject(ObjectStore& store,
                                               absl::string_view name,
                                               const ReadRange& range = {});

}  // namespace atl
