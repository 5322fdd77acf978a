#include "cli/doctor/volunteer_doctor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/features/features.h"
#include "base/host_port/host_port.h"
#include "base/net/http_proxy.h"
#include "base/obs/version.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/sandbox/landlock.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "cli/doctor/lent_machine.h"
#include "cli/doctor/machine_facts.h"
#include "cli/doctor/machine_judge.h"

namespace atl::cli {
namespace {

constexpr absl::Duration kDialMax = absl::Seconds(3);
constexpr absl::Duration kAskMax = absl::Seconds(5);
constexpr absl::Duration kDataMax = absl::Seconds(5);
constexpr absl::Duration kProbeMax = absl::Seconds(6);
// A run has at most a few servers; those that follow are not dialled.
constexpr size_t kDialledMax = 16;

absl::StatusOr<absl::Duration> Took(const absl::StatusOr<UniqueFd>& fd,
                                    absl::Time begin) {
  RETURN_IF_ERROR(fd.status());
  return SystemClock().Now() - begin;
}

}  // namespace

VolunteerDoctor::VolunteerDoctor(const Spec& spec, Checks& checks)
    : spec_(spec),
      checks_(checks),
      deadline_(SystemClock().Now() + spec.patience) {}

void VolunteerDoctor::Run() {
  if (spec_.gate.has_value()) {
    CheckGate();
  } else if (!spec_.data_rights.data_path.empty()) {
    CheckData();
  }
  if (!stopped()) CheckMachine();
  if (spec_.gate.has_value() && !stopped()) CheckLink();
}

coordinator::GateClientOptions VolunteerDoctor::GateOptions(
    absl::Duration timeout) const {
  coordinator::GateClientOptions options;
  options.address = spec_.gate->address;
  options.pin = spec_.gate->pin;
  options.proxy = spec_.proxy;
  options.stop_fd = spec_.stop_fd;
  options.timeout = Within(timeout).deadline - SystemClock().Now();
  return options;
}

net::WaitLimits VolunteerDoctor::Within(absl::Duration span) const {
  return {std::min(deadline_, SystemClock().Now() + span), spec_.stop_fd};
}

absl::StatusOr<UniqueFd> VolunteerDoctor::Dial(
    const std::string& address) const {
  ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(address));
  return net::Dial(target, spec_.proxy, Within(kDialMax));
}

void VolunteerDoctor::CheckGate() {
  const GateSubject& gate = *spec_.gate;
  const bool is_enrolled = gate.token_id.empty();
  if (!CheckWay()) {
    checks_.Skip({"tls", "clock", is_enrolled ? "certificate" : "token",
                  "version", "data"},
                 "the gate cannot be reached");
    return;
  }
  if (!CheckTls()) {
    checks_.Skip(
        {"clock", is_enrolled ? "certificate" : "token", "version", "data"},
        "the gate cannot be asked");
    return;
  }
  if (is_enrolled) {
    CheckEnrolment();
  } else {
    CheckToken(*answer_);
  }
  if (stopped()) return;
  CheckServices();
  CheckData();
}

bool VolunteerDoctor::CheckWay() {
  const std::string& address = spec_.gate->address;
  const absl::StatusOr<HostPort> gate = ParseHostPort(address);
  if (!gate.ok()) {
    checks_.Add(Failed("dns", gate.status().message(),
                       "Ask the operator for the gate's address."));
    return false;
  }
  if (!IsDirect(*gate) && !spec_.proxy.CheckUsable().ok()) {
    checks_.Add(JudgeConnection("proxy", address, spec_.proxy.CheckUsable()));
    return false;
  }
  // With a proxy only its own name is looked up here.
  const HostPort& dialled = IsDirect(*gate) ? *gate : spec_.proxy.address;
  checks_.Add(
      JudgeDns(dialled.host, net::FindAddresses(dialled, Within(kDialMax))));
  if (checks_.HasFailed("dns")) return false;
  const char* const id = IsDirect(*gate) ? "tcp" : "proxy";
  const absl::Time begin = SystemClock().Now();
  const absl::StatusOr<absl::Duration> took = Took(Dial(address), begin);
  if (took.ok()) round_trip_ = *took;
  checks_.Add(JudgeConnection(id, address, took));
  return !checks_.HasFailed(id);
}

bool VolunteerDoctor::CheckTls() {
  const GateSubject& gate = *spec_.gate;
  v1::GateRequest request;  // For nothing: its answer has the gate's clock.
  if (!gate.token_id.empty()) {
    request.mutable_check()->set_token_id(gate.token_id);
    request.mutable_check()->set_token_secret(gate.token_secret);
    request.mutable_check()->set_run_id(gate.run_id);
  }
  const auto client = coordinator::GateClient::Make(GateOptions(kAskMax));
  ClockFacts clock;
  clock.asked = absl::Now();
  absl::StatusOr<v1::GateResponse> answer =
      client.ok() ? (*client)->Ask(request, &root_pem_) : client.status();
  clock.answered = absl::Now();
  checks_.Add(JudgeTls(answer.status(), gate.pin));
  if (!answer.ok()) return false;
  clock.gate = FromProto(answer->time());
  checks_.Add(JudgeClock(clock));
  answer_ = *std::move(answer);
  return true;
}

void VolunteerDoctor::CheckToken(const v1::GateResponse& response) {
  absl::StatusOr<v1::TokenState> token = response.token_state();
  if (response.has_error()) {
    token = coordinator::FromGateError(response.error());
  }
  checks_.Add(JudgeToken(token, absl::Now()));
  if (!token.ok()) {
    checks_.Skip({"version"}, "the gate's answer does not describe the run");
    return;
  }
  if (token->run().has_spec()) run_ = token->run().spec();
  CheckVersion(token->run().program_version());
  if (!token->coordinator_address().empty()) {
    coordinator_addresses_ = {token->coordinator_address()};
  }
  server_addresses_.assign(token->server_addresses().begin(),
                           token->server_addresses().end());
}

void VolunteerDoctor::CheckEnrolment() {
  const GateSubject& gate = *spec_.gate;
  coordinator_addresses_ = {gate.coordinator_address};
  server_addresses_ = gate.server_addresses;
  const absl::Time now = absl::Now();
  checks_.Add(JudgeCertificate(gate.certificate_end, now));
  if (now >= gate.certificate_end) {
    checks_.Skip({"version"}, "only a valid certificate shows the run");
    return;
  }
  absl::StatusOr<v1::Run> run = gate.get_run();
  if (!run.ok()) {
    checks_.Add(Failed("version", run.status().message(),
                       "The coordinator does not show the run: ask the "
                       "operator."));
    return;
  }
  run_ = std::move(*run->mutable_spec());
  CheckVersion("");
}

void VolunteerDoctor::CheckVersion(const std::string& coordinator_version) {
  const uint64_t needed = run_.has_value() ? RequiredFeatures(*run_) : 0;
  checks_.Add(JudgeVersion(kProgramVersion, coordinator_version,
                           needed & ~ProgramFeatures()));
}

Dialled VolunteerDoctor::Look(const std::string& address) const {
  absl::StatusOr<UniqueFd> fd = Dial(address);
  Dialled dialled = {address, fd.status()};
  const absl::StatusOr<HostPort> target = ParseHostPort(address);
  const auto context = rpc::TlsContext::MakeClient("", "");
  if (!fd.ok() || !target.ok() || !context.ok()) return dialled;
  // Any certificate will do: only the names of its clients' CAs are read.
  const auto stream = rpc::TlsStream::Connect(
      **context, *std::move(fd), target->host, nullptr, Within(kDialMax));
  if (stream.ok()) dialled.admits_islands = (*stream)->AcceptsAnotherCa();
  return dialled;
}

void VolunteerDoctor::CheckServices() {
  const auto check = [this](absl::string_view id,
                            const std::vector<std::string>& addresses) {
    std::vector<Dialled> dialled;
    for (const std::string& address : addresses) {
      if (dialled.size() == kDialledMax || stopped()) break;
      dialled.push_back(Look(address));
    }
    if (!dialled.empty()) checks_.Add(JudgeServices(id, dialled));
  };
  check("coordinator", coordinator_addresses_);
  check("servers", server_addresses_);
}

void VolunteerDoctor::CheckData() {
  if (!run_.has_value() && spec_.gate.has_value()) {
    checks_.Skip({"data"}, "the gate did not send the run's spec");
    return;
  }
  v1::DataSpec data;
  if (run_.has_value()) {
    data = run_->data();
  } else {
    data.set_format(v1::DATA_FORMAT_BYTES);  // Which accepts any file.
  }
  DataFacts facts;
  facts.place = worker::FindDataPlace(data, spec_.data_rights);
  if (facts.place.ok() && !facts.place->path.empty()) {
    facts.found = worker::LookAtLocalData(data, facts.place->path);
  } else if (facts.place.ok() && !data.url().empty()) {
    const absl::Time deadline = Within(kDataMax).deadline;
    v1::RunSpec spec = *run_;
    worker::StoreAccess access;
    access.read_authorities = [this] { return root_pem_; };
    access.data_token = spec_.gate->data_token;
    // Not an address that only the gate's answer names.
    const worker::StoreOpener open = spec_.make_opener(
        spec_.gate->token_id.empty() ? spec_.gate->coordinator_address
                                     : spec_.gate->address,
        std::move(access));
    facts.manifest = worker::CompleteDataByUrl(
        spec,
        [this, deadline, &open](const std::string& url, std::function<bool()>) {
          return open(url, [this, deadline] {
            return stopped() || SystemClock().Now() > deadline;
          });
        });
  }
  checks_.Add(JudgeData(data, facts));
}

void VolunteerDoctor::CheckMachine() {
  std::optional<RunNeeds> needs;
  if (run_.has_value()) {
    if (const auto computed = ComputeRunNeeds(*run_); computed.ok()) {
      needs = *computed;
    }
  }
  const MachineFacts machine =
      ReadMachineFacts(spec_.state_directory, spec_.cache_directory);
  const RunLimits limits = LimitsOf(machine, spec_.lent, /*is_enrolled=*/true);
  checks_.Add(JudgeMemory(machine, needs, limits));
  checks_.Add(JudgeCores(machine));
  checks_.Add(JudgeIsa(machine));
  checks_.Add(JudgeSandbox(LandlockAbi()));
  checks_.Add(JudgeDiskSpace(machine, needs, limits, spec_.cache_bytes_max));
  if (checks_.HasFailed("disk_space")) {
    checks_.Skip({"disk_sync"}, "the disk has no room");
    return;
  }
  checks_.Add(JudgeDiskSync(MeasureSync(spec_.state_directory)));
}

void VolunteerDoctor::CheckLink() {
  const GateSubject& gate = *spec_.gate;
  for (const char* const id : {"dns", "proxy", "tcp", "tls", "token"}) {
    if (!checks_.HasFailed(id)) continue;
    checks_.Skip({"link_up", "link_down"}, absl::StrCat(id, " failed"));
    return;
  }
  v1::LinkProbe probe;
  coordinator::GateClientOptions options = GateOptions(kProbeMax);
  if (gate.token_id.empty()) {
    options.cert_pem = gate.cert_pem;
    options.key_pem = gate.key_pem;
  } else {
    probe.mutable_token()->set_token_id(gate.token_id);
    probe.mutable_token()->set_token_secret(gate.token_secret);
    probe.mutable_token()->set_run_id(gate.run_id);
  }
  const auto measure = [&](absl::string_view id, v1::LinkDirection direction) {
    probe.set_direction(direction);
    options.timeout = GateOptions(kProbeMax).timeout;
    const auto client = coordinator::GateClient::Make(options);
    const absl::StatusOr<rpc::LinkLoad> load =
        client.ok() ? (*client)->ProbeLink(probe) : client.status();
    checks_.Add(JudgeLink(id, load));
    return load.ok() ? ComputeRate(*load) : 0;
  };
  LinkFacts link;
  link.up_bytes_per_second = measure("link_up", v1::LINK_DIRECTION_UP);
  link.down_bytes_per_second = measure("link_down", v1::LINK_DIRECTION_DOWN);
  link.round_trip_seconds = absl::ToDoubleSeconds(round_trip_);
  if (link.up_bytes_per_second > 0 && link.down_bytes_per_second > 0) {
    link_ = link;
  }
}

}  // namespace atl::cli
