// The TLS files of a program, read again whenever they change.
//
// New connections use what Get() returns; existing ones keep what they have. A
// change that does not fit (half of a pair, an expired certificate, a missing
// file) is logged once, and Get() keeps the old files' content. A certificate
// that is not valid yet is used once it is: the clock of its CA may be ahead. A
// list of revoked certificates that goes away holds until the next start.

#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/rpc/certificates/tls.h"
#include "base/sync/mutex.h"

namespace atl::rpc {

// Thread-safe.
class TlsSource {
 public:
  // Reads the files. `who` names their user in the log: "the listener".
  // `now` must be thread-safe.
  // Errors as ReadTlsFiles; UNAUTHENTICATED also: the certificate's extended
  // key usage does not permit `use`. Null: a CA's certificate, which needs no
  // use.
  static absl::StatusOr<std::unique_ptr<TlsSource>> Open(
      const TlsFiles& files, std::optional<KeyUse> use, std::string who,
      std::function<absl::Time()> now = absl::Now);

  // Returns the contents of the files, in their last good state. The pointer
  // differs from the one before if the files changed. Costs a stat call a
  // file.
  std::shared_ptr<const TlsMaterial> Get();

 private:
  // Identifies the state of a file. All zero: the file cannot be read.
  struct Stamp {
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    int64_t changed_ns = 0;  // The file's ctime, which programs cannot set.
    bool operator==(const Stamp&) const = default;
  };
  using Stamps = std::array<Stamp, 5>;

  TlsSource(TlsFiles files, std::optional<KeyUse> use, std::string who,
            std::function<absl::Time()> now)
      : files_(std::move(files)),
        use_(use),
        who_(std::move(who)),
        now_(std::move(now)) {}

  static Stamp StampOf(const std::string& path);
  Stamps StampFiles() const;
  absl::StatusOr<TlsMaterial> Read(absl::Time now) const;

  const TlsFiles files_;
  const std::optional<KeyUse> use_;
  const std::string who_;
  const std::function<absl::Time()> now_;
  Mutex mutex_;
  Stamps stamps_ ABSL_GUARDED_BY(mutex_);
  // When files that do not fit are read again; InfiniteFuture: all fit.
  absl::Time read_again_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::shared_ptr<const TlsMaterial> material_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::rpc
