#include "coordinator/service/data_url_signer.h"

#include <atomic>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/object_store/open_object_store.h"
#include "base/object_store/retrier.h"
#include "base/obs/log.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr size_t kQueueMax = 64;
constexpr size_t kPresignersMax = 64;
constexpr size_t kPathBytesMax = 1024;  // The longest S3 key.
// Islands give a call ten seconds.
constexpr absl::Duration kCallMax = absl::Seconds(8);
constexpr absl::Duration kFailurePause = absl::Seconds(5);
constexpr RetryBudget kRetryBudget = {.attempt_count_max = 3,
                                      .time_max = absl::Seconds(5)};

absl::Status NoSignedUrls(absl::string_view why) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NO_SIGNED_URLS", why);
}

class S3Signer : public DataUrlSigner {
 public:
  explicit S3Signer(Environment environment) {
    options_.environment = std::move(environment);
    options_.retry_budget = kRetryBudget;
    options_.waiting.cancelled = [this] { return stops_.load(); };
    thread_ = std::thread([this] { Run(); });
  }

  ~S3Signer() override {
    Stop();
    thread_.join();
  }

  void Stop() override {
    stops_ = true;
    MutexLock lock(&mutex_);
    changed_.SignalAll();
  }

  void Sign(const std::string& manifest_url, std::vector<std::string> paths,
            Done done) override {
    absl::Status refused;
    if (!absl::StartsWith(manifest_url, "s3://")) {
      refused = NoSignedUrls("the run's data is not at s3://");
    } else if (!HasAwsCredentials(options_.environment)) {
      refused = NoSignedUrls(
          "the coordinator has no credentials for the run's data: its operator "
          "sets AWS_* in its environment");
    } else {
      MutexLock lock(&mutex_);
      if (queue_.size() < kQueueMax) {
        queue_.push_back({manifest_url.substr(0, manifest_url.rfind('/')),
                          std::move(paths), std::move(done),
                          SystemClock().Now() + kCallMax});
        changed_.SignalAll();
        return;
      }
      refused = RefuseForNow(
          absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
          "too many requests for signed URLs wait; try again",
          absl::Seconds(1));
    }
    done(refused);
  }

 private:
  struct Work {
    std::string directory_url;
    std::vector<std::string> paths;
    Done done;
    absl::Time end;  // Afterwards its caller has gone.
  };

  void Run() {
    while (true) {
      Work work;
      {
        MutexLock lock(&mutex_);
        while (queue_.empty() && !stops_) changed_.Wait(&mutex_);
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work.done(Answer(work));
    }
  }

  absl::StatusOr<v1::SignDataUrlsResponse> Answer(const Work& work) {
    const absl::Time now = SystemClock().Now();
    if (stops_ || now >= work.end || now < failed_until_) {
      return absl::UnavailableError(
          "the coordinator cannot sign URLs now; try again");
    }
    absl::StatusOr<v1::SignDataUrlsResponse> made = SignAll(work);
    if (made.ok()) return made;
    // One slow server of credentials must not cost each caller its wait.
    failed_until_ = SystemClock().Now() + kFailurePause;
    return ToIslandsError(made.status());
  }

  absl::StatusOr<v1::SignDataUrlsResponse> SignAll(const Work& work) {
    auto found = presigners_.find(work.directory_url);
    if (found == presigners_.end()) {
      if (presigners_.size() >= kPresignersMax) presigners_.clear();
      ASSIGN_OR_RETURN(auto made,
                       OpenObjectPresigner(work.directory_url, options_));
      found = presigners_.emplace(work.directory_url, std::move(made)).first;
    }
    v1::SignDataUrlsResponse response;
    for (const std::string& path : work.paths) {
      ASSIGN_OR_RETURN(const PresignedUrl signed_url,
                       found->second->Presign(path, kDataUrlLifetime));
      v1::SignedDataUrl& url = *response.add_urls();
      url.set_path(path);
      url.set_url(signed_url.url);
      *url.mutable_expire_time() = ToProto(signed_url.end_time);
    }
    return response;
  }

  // Hides faults of our credentials from islands: only the log names them.
  static absl::Status ToIslandsError(const absl::Status& status) {
    LOG(WARNING) << "cannot sign URLs of data: " << status.message();
    return absl::IsUnavailable(status) || absl::IsCancelled(status)
               ? absl::UnavailableError(
                     "the server of the coordinator's credentials does not "
                     "answer; try again")
               : NoSignedUrls(
                     "the coordinator's credentials for the run's data do not "
                     "work; its log says why");
  }

  ObjectStoreOptions options_;
  std::atomic<bool> stops_ = false;
  // By the URL of their directory. Used on thread_ only.
  std::map<std::string, std::unique_ptr<ObjectPresigner>> presigners_;
  absl::Time failed_until_ = absl::InfinitePast();  // Used on thread_ only.
  Mutex mutex_;
  CondVar changed_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

absl::Status CheckDataPaths(const std::vector<std::string>& paths) {
  if (paths.empty() || paths.size() > kDataPathsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "paths has ", paths.size(), " paths, not 1 to ", kDataPathsMax));
  }
  for (const std::string& path : paths) {
    if (path.empty() || path.size() > kPathBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a path has ", path.size(), " bytes, not 1 to ", kPathBytesMax));
    }
    RETURN_IF_ERROR(CheckRelativeName(path));
  }
  return absl::OkStatus();
}

std::unique_ptr<DataUrlSigner> MakeDataUrlSigner(Environment environment) {
  return std::make_unique<S3Signer>(std::move(environment));
}

}  // namespace atl::coordinator
