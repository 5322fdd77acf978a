// atoll token create, list and revoke.
#include <memory>
#include <stop_token>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/codec/sha256.h"
#include "base/flags/flags.h"
#include "base/identity/join_string.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "cli/enrol/enrol_commands.h"
#include "cli/enrol/token_secret.h"
#include "cli/interrupt.h"
#include "cli/output/error.h"
#include "cli/output/output.h"
#include "cli/output/table.h"
#include "cli/units/units.h"
#include "coordinator/client/client.h"

namespace atl::cli {
namespace {

using Stub = v1::EnrolmentService::Stub;

// A gate that has just started is waited for.
constexpr absl::Duration kGateWait = absl::Seconds(15);
constexpr absl::Duration kGatePoll = absl::Milliseconds(500);

struct CreateOptions {
  std::string run_id;
  std::string role = "island";
  int64_t uses = 1;
  std::string ttl = "24h";
  std::string name;
  double weight_share = 0;
  bool accept_unbounded = false;
  std::string gate;
};

std::string RoleText(v1::EnrolledRole role) {
  return role == v1::ENROLLED_ROLE_READER ? "reader" : "island";
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", FromProto(time),
                          absl::UTCTimeZone());
}

std::string StateText(const v1::Token& token, absl::Time now) {
  if (token.has_revoke_time()) return "revoked";
  if (now >= FromProto(token.expire_time())) return "expired";
  return token.use_count() >= token.use_count_max() ? "used" : "valid";
}

absl::StatusOr<v1::CreateTokenResponse> CreateWithGate(
    const coordinator::Client& client, const std::stop_token& stop,
    const v1::CreateTokenRequest& request) {
  const absl::Time deadline = absl::Now() + kGateWait;
  while (true) {
    auto response = client.Call(&Stub::CreateToken, request);
    if (GetReason(response.status()) != "NO_GATE" || absl::Now() >= deadline ||
        stop.stop_requested()) {
      return response;
    }
    absl::SleepFor(kGatePoll);
  }
}

// True if islands will join a strict run. Best effort.
bool IsStrict(const coordinator::Client& client, const CreateOptions& options) {
  if (options.role == "reader") return false;
  const absl::StatusOr<v1::GetRunResponse> run =
      client.GetRun(options.run_id);
  return run.ok() &&
         run->run().spec().schedule().timing() != v1::TIMING_ELASTIC;
}

absl::Status Create(Context& context, const CreateOptions& options) {
  const absl::StatusOr<double> ttl = ParseSeconds(options.ttl);
  if (!ttl.ok()) return WithContext(ttl.status(), "--ttl");
  ASSIGN_OR_RETURN(const TokenSecret secret, MakeTokenSecret());
  v1::CreateTokenRequest request;
  v1::Token& token = *request.mutable_token();
  token.set_token_id(secret.token_id);
  token.set_role(options.role == "reader" ? v1::ENROLLED_ROLE_READER
                                          : v1::ENROLLED_ROLE_ISLAND);
  token.set_run_id(options.run_id);
  token.set_use_count_max(options.uses);
  token.set_name_pattern(options.name);
  token.set_weight_share_max(options.weight_share);
  request.set_accept_unbounded(options.accept_unbounded);
  *token.mutable_expire_time() =
      ToProto(absl::Now() + absl::Seconds(*ttl));
  const codec::Sha256Digest digest = codec::ComputeSha256(secret.secret);
  request.set_secret_sha256(std::string(digest.begin(), digest.end()));
  Interrupt interrupt;
  ASSIGN_OR_RETURN(const auto client,
                   context.MakeClient({.stop = interrupt.first()}));
  ASSIGN_OR_RETURN(const v1::CreateTokenResponse response,
                   CreateWithGate(*client, interrupt.first(), request));
  const std::string gate =
      options.gate.empty() ? response.gate_address() : options.gate;
  const std::string join =
      FormatJoinString({gate, options.run_id, secret.token_id, secret.secret,
                        response.pin()});
  Json data = ToJson(response.token());
  data["gate"] = gate;
  data["pin"] = response.pin();
  data["join_string"] = join;
  context.output().Message(absl::StrFormat(
      "token %s: %s of run %s, %d %s, until %s.\n"
      "Anyone who has the string can use it: send it over a private channel.",
      secret.token_id, RoleText(response.token().role()), options.run_id,
      options.uses, options.uses == 1 ? "use" : "uses",
      TimeText(response.token().expire_time())));
  if (IsStrict(*client, options)) {
    context.output().Message(
        absl::StrCat("Run ", options.run_id,
                     " is strict: every island is waited for, and one refused "
                     "contribution\npauses it. Admit people whom you can "
                     "reach, or make an elastic run."));
  }
  context.output().Print(data, join + "\n");
  const absl::Status& printed = context.output().data_status();
  return WithHint(
      WithContext(printed,
                  absl::StrCat("token ", secret.token_id,
                               " exists, but its join string, which is shown "
                               "only once, is lost")),
      absl::StrCat("`atoll token revoke ", secret.token_id,
                   "` ends it. Then make another one."));
}

struct ListOptions {
  std::string run_id;
};

absl::Status List(Context& context, const ListOptions& options) {
  ASSIGN_OR_RETURN(const auto client, context.MakeClient());
  v1::ListTokensRequest request;
  request.set_run_id(options.run_id);
  ASSIGN_OR_RETURN(const v1::ListTokensResponse response,
                   client->Call(&Stub::ListTokens, request));
  Table table({"TOKEN", "RUN", "ROLE", ">USED", ">SHARE", "STATE", "UNTIL",
               "NAMES"});
  Json items = Json::array();
  for (const v1::Token& token : response.tokens()) {
    const std::string state = StateText(token, absl::Now());
    Json item = ToJson(token);
    item["state"] = state;
    items.push_back(std::move(item));
    table.AddRow({token.token_id(), token.run_id(), RoleText(token.role()),
                  absl::StrCat(token.use_count(), "/", token.use_count_max()),
                  token.weight_share_max() > 0
                      ? absl::StrCat(token.weight_share_max())
                      : "-",
                  state, TimeText(token.expire_time()),
                  token.name_pattern().empty() ? "any" : token.name_pattern()});
  }
  context.output().PrintList(
      "tokens", items, table.empty() ? "there are no tokens\n" : table.ToString());
  return absl::OkStatus();
}

struct RevokeOptions {
  std::string token_id;
  bool islands = false;
};

absl::Status RevokeToken(Context& context, const RevokeOptions& options) {
  ASSIGN_OR_RETURN(const auto client, context.MakeClient());
  v1::RevokeTokenRequest request;
  request.set_token_id(options.token_id);
  request.set_islands(options.islands);
  ASSIGN_OR_RETURN(const v1::RevokeTokenResponse response,
                   client->Call(&Stub::RevokeToken, request));
  context.output().Print(
      ToJson(response),
      options.islands
          ? absl::StrCat("token ", options.token_id, " is revoked, and the ",
                         response.revoked_name_count(),
                         " names that were enrolled by it\n")
          : absl::StrCat("token ", options.token_id,
                         " is revoked; islands that used it stay: `atoll token "
                         "revoke --islands ",
                         options.token_id, "` ends them\n"));
  return absl::OkStatus();
}

}  // namespace

void AddTokenCreate(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("create", "Make a join string for one run");
  command.Footer(
      "Prints the join string, and nothing else, on stdout. Its secret is\n"
      "shown once: the coordinator keeps only a hash.\n"
      "Examples:\n"
      "  atoll token create --run spring --role island --uses 1 --ttl 24h\n"
      "  atoll token create --run spring --uses 30 --ttl 48h --name 'lab-*' \\\n"
      "    --weight-share 0.05");
  auto options = std::make_shared<CreateOptions>();
  command.Add("--run", options->run_id, "Id of the run").Required();
  command
      .Add("--role", options->role,
           "island (trains: `atoll join`) or reader (queries: `atoll "
           "enrol`)")
      .Check(flags::IsMember({"island", "reader"}))
      .ShowDefault();
  command
      .Add("--uses", options->uses,
           "Machines that may use it; at most half of the islands that the "
           "run can have")
      .Check(flags::Range(int64_t{1}, int64_t{512}))
      .ShowDefault();
  command
      .Add("--ttl", options->ttl,
           "How long it is valid: 30m, 24h; at most 2160h (90 days)")
      .ShowDefault();
  command.Add("--name", options->name,
              "Names that its islands may have, after the e- that all of them "
              "get: attic, or lab-* with any characters for the *; default: "
              "any");
  command
      .Add("--weight-share", options->weight_share,
           "Largest share of a merge's weight that its islands have "
           "together, in (0, 1); 0: no limit. In the run's quorum "
           "they then count once together")
      .Check(flags::Range(0.0, 0.999999))
      .ShowDefault();
  command.AddFlag("--accept-unbounded", options->accept_unbounded,
                  "Also for a run without outer.enrolled_norm_factor, where "
                  "one contribution may replace the model");
  command.Add("--gate", options->gate,
              "HOST:PORT of the gate in the string; default: what the "
              "gate announces (its --advertise)");
  SetAction(command, context, Create, options);
}

void AddTokenList(flags::Command& app, Context& context) {
  flags::Command& command = app.AddCommand("list", "List the join tokens");
  command.Footer("Example:\n  atoll token list --run spring");
  auto options = std::make_shared<ListOptions>();
  command.Add("--run", options->run_id,
              "Only tokens of this run; default: all");
  SetAction(command, context, List, options);
}

void AddTokenRevoke(flags::Command& app, Context& context) {
  flags::Command& command =
      app.AddCommand("revoke", "End a join token; its islands stay");
  command.Footer(
      "--islands is for a join string that has leaked: it cannot be undone.\n"
      "Others may have the names then.\n"
      "Examples:\n"
      "  atoll token revoke 3f9k2m7q1x8z\n"
      "  atoll token revoke --islands 3f9k2m7q1x8z");
  auto options = std::make_shared<RevokeOptions>();
  command.Add("token", options->token_id, "Id of the token").Required();
  command.AddFlag("--islands", options->islands,
                  "Also revoke the islands and readers that enrolled by it");
  SetAction(command, context, RevokeToken, options);
}

}  // namespace atl::cli
