#include "base/rpc/certificates/data_token.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/layout/ids.h"
#include "base/rpc/certificates/x509.h"

namespace atl::rpc {
namespace {

constexpr absl::string_view kVersion = "atd1";

struct DigestFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Digest = std::unique_ptr<EVP_MD_CTX, DigestFree>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string Signed(absl::string_view content) {
  return absl::StrCat(kDataTokenDomain, content);
}

// Empty: the key cannot sign.
std::string Sign(EVP_PKEY& key, absl::string_view bytes) {
  const Digest context(EVP_MD_CTX_new());
  size_t size = 0;
  std::string signature;
  bool ok = context != nullptr &&
            EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr,
                               &key) == 1 &&
            EVP_DigestSign(context.get(), nullptr, &size, Bytes(bytes),
                           bytes.size()) == 1;
  if (ok) {
    signature.resize(size);
    ok = EVP_DigestSign(context.get(),
                        reinterpret_cast<unsigned char*>(signature.data()),
                        &size, Bytes(bytes), bytes.size()) == 1;
  }
  ERR_clear_error();
  signature.resize(ok ? size : 0);
  return signature;
}

bool IsSigned(EVP_PKEY& key, absl::string_view bytes,
              absl::string_view signature) {
  const Digest context(EVP_MD_CTX_new());
  const bool ok =
      context != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                           &key) == 1 &&
      EVP_DigestVerify(context.get(), Bytes(signature), signature.size(),
                       Bytes(bytes), bytes.size()) == 1;
  ERR_clear_error();
  return ok;
}

bool IsSignedByOneOf(const std::string& ca_pem, absl::string_view bytes,
                     absl::string_view signature) {
  for (const Certificate& ca : ReadCertificates(ca_pem)) {
    EVP_PKEY* const key = X509_get0_pubkey(ca.get());
    if (key != nullptr && IsSigned(*key, bytes, signature)) return true;
  }
  ERR_clear_error();
  return false;
}

absl::Status Refused(absl::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("the data token ", why));
}

}  // namespace

absl::StatusOr<std::string> SignDataToken(const DataToken& token,
                                          const std::string& ca_key_pem) {
  const PrivateKey key = ReadPrivateKey(ca_key_pem);
  if (key == nullptr) {
    return absl::InvalidArgumentError("the CA's private key is unreadable");
  }
  const std::string content =
      absl::StrJoin({std::string(kVersion), token.cluster_id, token.run_uid,
                     std::string(RoleName(token.role)), token.name,
                     absl::StrCat(absl::ToUnixSeconds(token.end))},
                    ".");
  const std::string signature = Sign(*key, Signed(content));
  if (signature.empty()) {
    return absl::InvalidArgumentError("the CA's key cannot sign a data token");
  }
  return absl::StrCat(content, ".", absl::WebSafeBase64Escape(signature));
}

absl::StatusOr<DataToken> VerifyDataToken(absl::string_view text,
                                          const std::string& ca_pem,
                                          absl::Time now) {
  if (text.size() > kDataTokenBytesMax) return Refused("is too long");
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '.');
  std::string signature;
  if (parts.size() != 7 || parts[0] != kVersion ||
      !absl::WebSafeBase64Unescape(parts[6], &signature)) {
    return Refused("is malformed");
  }
  const absl::string_view content =
      text.substr(0, text.size() - parts[6].size() - 1);
  if (!IsSignedByOneOf(ca_pem, Signed(content), signature)) {
    return Refused("is not signed by the island CA");
  }
  DataToken token;
  token.cluster_id = std::string(parts[1]);
  token.run_uid = std::string(parts[2]);
  token.name = std::string(parts[4]);
  const bool is_reader = parts[3] == RoleName(Role::kReader);
  token.role = is_reader ? Role::kReader : Role::kIsland;
  int64_t end_seconds = 0;
  if ((!is_reader && parts[3] != RoleName(Role::kIsland)) ||
      token.run_uid.empty() || !ValidateId("name", token.name).ok() ||
      !absl::SimpleAtoi(parts[5], &end_seconds)) {
    return Refused("is malformed");
  }
  token.end = absl::FromUnixSeconds(end_seconds);
  if (now >= token.end) {
    return Refused(absl::StrCat(
        "ended at ",
        absl::FormatTime(absl::RFC3339_sec, token.end, absl::UTCTimeZone())));
  }
  return token;
}

}  // namespace atl::rpc
