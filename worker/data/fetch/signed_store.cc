#include "worker/data/fetch/signed_store.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

using Opener = std::function<absl::StatusOr<std::unique_ptr<ObjectStore>>(
    const std::string& url)>;

class SignedStore : public ObjectStore {
 public:
  SignedStore(std::string directory_url, SignUrl sign, Opener open)
      : directory_url_(std::move(directory_url)),
        sign_(std::move(sign)),
        open_(std::move(open)) {}

  absl::StatusOr<std::vector<ObjectInfo>> List(absl::string_view prefix,
                                               int64_t) override {
    return absl::UnimplementedError(
        absl::StrCat(GetUrl(prefix), ": signed URLs give no list"));
  }

  absl::StatusOr<ObjectInfo> Stat(absl::string_view name) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store, Open(name));
    ASSIGN_OR_RETURN(ObjectInfo info, store->Stat(""));
    info.name = std::string(name);
    return info;
  }

  absl::Status Read(absl::string_view name, const ReadRange& range,
                    ObjectSink sink) override {
    ReadRange rest = range;
    bool is_refused = false;  // The last URL, before it gave a byte.
    while (true) {
      ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store, Open(name));
      int64_t read_bytes = 0;
      absl::Status taken;
      const absl::Status status =
          store->Read("", rest, [&](absl::string_view bytes) {
            read_bytes += static_cast<int64_t>(bytes.size());
            taken = sink(bytes);
            return taken;
          });
      const bool gave_none = read_bytes == 0;
      if (!taken.ok() || !absl::IsPermissionDenied(status) ||
          (is_refused && gave_none)) {
        return status;
      }
      is_refused = gave_none;
      rest.offset += read_bytes;
      if (rest.length.has_value()) *rest.length -= read_bytes;
    }
  }

  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(absl::string_view name,
                                                      WriteMode) override {
    return absl::UnimplementedError(
        absl::StrCat(GetUrl(name), ": signed URLs are for reading"));
  }

  std::string GetUrl(absl::string_view name) const override {
    return JoinObjectName(directory_url_, name);
  }

 private:
  absl::StatusOr<std::unique_ptr<ObjectStore>> Open(absl::string_view name) {
    const absl::StatusOr<std::string> url = sign_(std::string(name));
    if (!url.ok()) {
      return Annotate(url.status(),
                      absl::StrCat("signed URL of ", GetUrl(name)));
    }
    if (!absl::StartsWith(*url, "https://") &&
        !absl::StartsWith(*url, "http://")) {
      return absl::FailedPreconditionError(
          absl::StrCat("signed URL of ", GetUrl(name),
                       ": it is not https://; tell the operator"));
    }
    return open_(*url);
  }

  const std::string directory_url_;
  const SignUrl sign_;
  const Opener open_;
};

}  // namespace

std::unique_ptr<ObjectStore> MakeSignedStore(std::string directory_url,
                                             SignUrl sign, Opener open) {
  return std::make_unique<SignedStore>(std::move(directory_url),
                                       std::move(sign), std::move(open));
}

}  // namespace atl::worker
