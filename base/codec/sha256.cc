#include "base/codec/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "base/status/check.h"

namespace atl::codec {

struct Sha256::Context {
  Context() : evp(EVP_MD_CTX_new()) {}
  ~Context() { EVP_MD_CTX_free(evp); }
  EVP_MD_CTX* evp;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  CHECK(context_->evp != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(absl::string_view bytes) {
  CHECK_EQ(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()), 1);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  CHECK_EQ(EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr), 1);
  return digest;
}

Sha256Digest ComputeSha256(absl::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

std::string ToHex(const Sha256Digest& digest) {
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace atl::codec
