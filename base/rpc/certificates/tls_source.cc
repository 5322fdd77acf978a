#include "base/rpc/certificates/tls_source.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

// How often files that do not fit are read. One that did not fit because of the
// time may fit later, unchanged.
constexpr absl::Duration kReadAgainAfter = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<TlsSource>> TlsSource::Open(
    const TlsFiles& files, std::optional<KeyUse> use, std::string who,
    std::function<absl::Time()> now) {
  auto source = std::unique_ptr<TlsSource>(
      new TlsSource(files, use, std::move(who), std::move(now)));
  MutexLock lock(&source->mutex_);
  source->stamps_ = source->StampFiles();
  ASSIGN_OR_RETURN(TlsMaterial material, source->Read(source->now_()));
  source->material_ = std::make_shared<const TlsMaterial>(std::move(material));
  return source;
}

std::shared_ptr<const TlsMaterial> TlsSource::Get() {
  MutexLock lock(&mutex_);
  const Stamps stamps = StampFiles();
  const absl::Time now = now_();
  const bool has_changed = stamps != stamps_;
  if (!has_changed && now < read_again_) return material_;
  // If a file changes from here on, the next call reads again.
  stamps_ = stamps;
  absl::StatusOr<TlsMaterial> read = Read(now);
  if (read.ok() && read->crl_pem.empty() && !material_->crl_pem.empty()) {
    read->crl_pem = material_->crl_pem;
    if (has_changed) {
      LOG(WARNING) << who_ << ": " << RevocationListPath(files_)
                   << " is gone; the certificates that it named stay revoked "
                      "until the next start";
    }
  }
  read_again_ = read.ok() ? absl::InfiniteFuture() : now + kReadAgainAfter;
  if (!read.ok()) {
    if (!has_changed) return material_;
    LOG(WARNING) << who_
                 << " keeps its old certificate: " << read.status().message();
  } else if (!(*read == *material_)) {
    material_ = std::make_shared<const TlsMaterial>(*std::move(read));
    LOG(INFO) << who_ << " uses the new certificate of " << files_.cert;
  }
  return material_;
}

TlsSource::Stamp TlsSource::StampOf(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {
      found.st_dev, found.st_ino, found.st_size,
      found.st_ctim.tv_sec * int64_t{1'000'000'000} + found.st_ctim.tv_nsec};
}

TlsSource::Stamps TlsSource::StampFiles() const {
  const std::string island_ca = IslandCaPath(files_);
  const std::string crl = RevocationListPath(files_);
  return {StampOf(files_.cert), StampOf(files_.key), StampOf(files_.ca),
          island_ca.empty() ? Stamp() : StampOf(island_ca),
          crl.empty() ? Stamp() : StampOf(crl)};
}

absl::StatusOr<TlsMaterial> TlsSource::Read(absl::Time now) const {
  ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsFiles(files_, now));
  if (use_.has_value()) {
    RETURN_IF_ERROR(
        Annotate(CheckKeyUse(material.cert_pem, *use_),
                 absl::StrCat("--tls-cert: \"", files_.cert, "\"")));
  }
  return material;
}

}  // namespace atl::rpc
