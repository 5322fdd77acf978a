#include "cli/enrol/token_secret.h"

#include "absl/status/status.h"
#include "openssl/rand.h"

namespace atl::cli {
namespace {

constexpr int kSecretBytes = 32;
constexpr int kIdBytes = 12;
constexpr char kAlphabet[] = "0123456789abcdefghijklmnopqrstuv";

}  // namespace

absl::StatusOr<TokenSecret> MakeTokenSecret() {
  std::string random(kSecretBytes + kIdBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()),
                 kSecretBytes + kIdBytes) != 1) {
    return absl::UnavailableError("the machine gives no random bytes");
  }
  TokenSecret made;
  made.secret = random.substr(0, kSecretBytes);
  for (int i = 0; i < kIdBytes; ++i) {
    made.token_id +=
        kAlphabet[static_cast<unsigned char>(random[kSecretBytes + i]) & 31];
  }
  return made;
}

}  // namespace atl::cli
