#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/obs/version.h"
#include "base/random_id/random_id.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/encoded_items.h"
#include "coordinator/service/services.h"
#include "coordinator/service/shared_answer.h"

namespace atl::coordinator {
namespace {

constexpr int32_t kAuditPageDefault = 100;
constexpr int32_t kAuditPageMax = 1000;
// A page ends early at this size, because messages are bounded.
constexpr int64_t kAuditPageBytes = 1 << 20;

absl::StatusOr<v1::ListAuditRecordsResponse> ReadAudit(
    const Store& store, const v1::ListAuditRecordsRequest& request) {
  if (request.page_size() < 0 || request.after_number() < 0 ||
      request.after_number() == INT64_MAX) {
    return InvalidFields({{"page_size", "must be at least 0"}});
  }
  const int32_t size =
      request.page_size() == 0
          ? kAuditPageDefault
          : std::min(request.page_size(), kAuditPageMax);
  std::vector<HistoryRow> rows;
  for (const HistoryTable table :
       {HistoryTable::kAudit, HistoryTable::kEnrolments}) {
    ASSIGN_OR_RETURN(std::vector<HistoryRow> some,
                     store.ReadHistory("", table, request.after_number() + 1,
                                       INT64_MAX, kAuditPageBytes));
    std::move(some.begin(), some.end(), std::back_inserter(rows));
  }
  std::sort(rows.begin(), rows.end(),
            [](const HistoryRow& a, const HistoryRow& b) {
              return a.number < b.number;
            });
  v1::ListAuditRecordsResponse response;
  int64_t bytes = 0;
  for (const HistoryRow& row : rows) {
    // A table of more bytes was cut, and lacks later rows.
    if (response.records_size() == size || bytes >= kAuditPageBytes) break;
    bytes += static_cast<int64_t>(row.value.size());
    if (!response.add_records()->ParseFromString(row.value)) {
      return absl::DataLossError("the audit log cannot be read back");
    }
  }
  return response;
}

class EnrolmentServiceImpl
    : public v1::EnrolmentService::WithRawCallbackMethod_ListTokens<
          v1::EnrolmentService::CallbackService> {
 public:
  EnrolmentServiceImpl(EventLoop& loop, std::string pin,
                       std::function<bool()> admits_islands)
      : loop_(loop),
        pin_(std::move(pin)),
        admits_islands_(std::move(admits_islands)) {}

  grpc::ServerUnaryReactor* AnnounceGate(
      grpc::CallbackServerContext* context,
      const v1::AnnounceGateRequest* request,
      v1::AnnounceGateResponse* response) override {
    if (absl::Status status = CheckGate(*request); !status.ok()) {
      return AnswerError(context, status);
    }
    return Decide(context, request, response, &Coordinator::AnnounceGate);
  }

  grpc::ServerUnaryReactor* ConsumeToken(
      grpc::CallbackServerContext* context,
      const v1::ConsumeTokenRequest* request,
      v1::ConsumeTokenResponse* response) override {
    if (absl::Status status = CheckIslandCa(); !status.ok()) {
      return AnswerError(context, status);
    }
    return Decide(context, request, response, &Coordinator::ConsumeToken,
                  {RandomId(), RandomId()});
  }

  grpc::ServerUnaryReactor* CheckToken(
      grpc::CallbackServerContext* context,
      const v1::CheckTokenRequest* request,
      v1::CheckTokenResponse* response) override {
    if (absl::Status status = CheckIslandCa(); !status.ok()) {
      return AnswerError(context, status);
    }
    return Decide(
        context, request, response,
        [](Coordinator& coordinator, const v1::CheckTokenRequest& asked,
           const EnrolmentCall& call) {
          auto checked = coordinator.CheckToken(asked, call);
          if (checked.ok()) {
            checked->mutable_run()->set_program_version(kProgramVersion);
          }
          return checked;
        });
  }

  grpc::ServerUnaryReactor* RenewCertificate(
      grpc::CallbackServerContext* context,
      const v1::RenewCertificateRequest* request,
      v1::RenewCertificateResponse* response) override {
    return Decide(context, request, response, &Coordinator::RenewCertificate,
                  {.serial = RandomId()});
  }

  grpc::ServerUnaryReactor* CreateToken(
      grpc::CallbackServerContext* context,
      const v1::CreateTokenRequest* request,
      v1::CreateTokenResponse* response) override {
    return Decide(context, request, response, &Coordinator::CreateToken);
  }

  // Tokens of a run that is gone are listed too, so the view is of all tokens.
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override {
    return AnswerShared<v1::ListTokensRequest, /*kIsOfRun=*/false>(
        loop_, context, request, response,
        [](Coordinator& coordinator, absl::Time) {
          return [tokens = coordinator.enrolments().ListTokens("")] {
            v1::ListTokensResponse list;
            list.mutable_tokens()->Add(tokens.begin(), tokens.end());
            return EncodedItems(list, list.tokens(), [](const v1::Token& token) {
              return token.run_id();
            });
          };
        },
        [](const EncodedItems& list, const v1::ListTokensRequest& asked) {
          if (asked.run_id().empty()) return list.Whole();
          std::vector<grpc::Slice> parts;
          const auto& names = list.names();
          for (size_t i = 0; i < names.size();) {
            size_t end = i;
            while (end < names.size() && names[end] == asked.run_id()) ++end;
            list.Add(i, end, parts);
            i = std::max(end, i + 1);
          }
          return grpc::ByteBuffer(parts.data(), parts.size());
        });
  }

  grpc::ServerUnaryReactor* RevokeToken(
      grpc::CallbackServerContext* context,
      const v1::RevokeTokenRequest* request,
      v1::RevokeTokenResponse* response) override {
    return Decide(context, request, response, &Coordinator::RevokeToken);
  }

  grpc::ServerUnaryReactor* RevokeIsland(
      grpc::CallbackServerContext* context,
      const v1::RevokeIslandRequest* request,
      v1::RevokeIslandResponse* response) override {
    return Decide(context, request, response, &Coordinator::RevokeIsland);
  }

  grpc::ServerUnaryReactor* ListAuditRecords(
      grpc::CallbackServerContext* context,
      const v1::ListAuditRecordsRequest* request,
      v1::ListAuditRecordsResponse* response) override {
    // The store has only durable rows, and the core is not asked.
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const absl::Status admitted = loop_.reads().Run(
        GetOrigin(context, *request),
        [=, this](const absl::Status& status, ReadPool::Held) {
          using Read = absl::StatusOr<v1::ListAuditRecordsResponse>;
          Read read = status.ok() ? ReadAudit(loop_.store(), *request)
                                  : Read(status);
          if (read.ok()) *response = *std::move(read);
          reactor->Finish(rpc::ToGrpc(WithDefaultReason(read.status())));
        });
    if (!admitted.ok()) {
      reactor->Finish(rpc::ToGrpc(WithDefaultReason(admitted)));
    }
    return reactor;
  }

 private:
  // Answers with what `decide`, as a method of the core, returns. `random` is
  // for decisions that make a certificate.
  template <typename Request, typename Response, typename Decision>
  grpc::ServerUnaryReactor* Decide(grpc::CallbackServerContext* context,
                                   const Request* request, Response* response,
                                   Decision decide,
                                   EnrolmentRandom random = {}) {
    return Answer<Response>(
        loop_, context, request, response,
        [=, actor = GetActor(*context)](
            Coordinator& coordinator, absl::Time now) {
          return std::invoke(decide, coordinator, *request,
                             EnrolmentCall{actor, random, absl::Now(), now});
        });
  }

  // A gate that shows another root would send strangers to it.
  absl::Status CheckGate(const v1::AnnounceGateRequest& request) const {
    RETURN_IF_ERROR(CheckIslandCa());
    if (pin_.empty() || request.pin() == pin_) return absl::OkStatus();
    return Refuse(absl::StatusCode::kPermissionDenied, "WRONG_PIN",
                  absl::StrCat("the gate has the root with pin ",
                               request.pin().substr(0, 64),
                               ", the coordinator that with ", pin_));
  }

  absl::Status CheckIslandCa() const {
    if (admits_islands_()) return absl::OkStatus();
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_ISLAND_CA",
                  "the coordinator has no island CA, so no island that a gate "
                  "enrols could connect: its operator gives it --tls-dir with "
                  "island-ca.crt");
  }

  EventLoop& loop_;
  const std::string pin_;
  const std::function<bool()> admits_islands_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeEnrolmentService(
    EventLoop& loop, std::string pin, std::function<bool()> admits_islands) {
  return std::make_unique<EnrolmentServiceImpl>(loop, std::move(pin),
                                                std::move(admits_islands));
}

}  // namespace atl::coordinator
