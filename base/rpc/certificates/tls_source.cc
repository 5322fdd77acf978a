#include "base/rpc/certificates/tls_source.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::rpc {

absl::StatusOr<std::unique_ptr<TlsSource>> TlsSource::Open(
    const TlsFiles& files, KeyUse use, std::string who) {
  auto source = std::unique_ptr<TlsSource>(
      new TlsSource(files, use, std::move(who)));
  MutexLock lock(&source->mutex_);
  source->stamps_ = source->StampFiles();
  ASSIGN_OR_RETURN(TlsMaterial material, source->Read());
  source->material_ = std::make_shared<const TlsMaterial>(std::move(material));
  return source;
}

std::shared_ptr<const TlsMaterial> TlsSource::Get() {
  MutexLock lock(&mutex_);
  const Stamps stamps = StampFiles();
  if (stamps == stamps_) return material_;
  // If a file changes from here on, the next call reads again.
  stamps_ = stamps;
  absl::StatusOr<TlsMaterial> read = Read();
  if (!read.ok()) {
    LOG(WARNING) << who_ << " keeps its old certificate: "
                 << read.status().message();
  } else if (!(*read == *material_)) {
    material_ = std::make_shared<const TlsMaterial>(*std::move(read));
    LOG(INFO) << who_ << " uses the new certificate of " << files_.cert;
  }
  return material_;
}

TlsSource::Stamp TlsSource::StampOf(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino, found.st_size,
          found.st_ctim.tv_sec * int64_t{1'000'000'000} +
              found.st_ctim.tv_nsec};
}

TlsSource::Stamps TlsSource::StampFiles() const {
  return {StampOf(files_.cert), StampOf(files_.key), StampOf(files_.ca)};
}

absl::StatusOr<TlsMaterial> TlsSource::Read() const {
  ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsFiles(files_));
  RETURN_IF_ERROR(Annotate(CheckKeyUse(material.cert_pem, use_),
                           absl::StrCat("--tls-cert: \"", files_.cert, "\"")));
  return material;
}

}  // namespace atl::rpc
