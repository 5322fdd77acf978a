// Checks of a machine that trains, or wants to: the way to the gate, the token,
// the run, its data, and the machine itself. Each wait is bounded.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/host_port/proxy.h"
#include "base/net/socket.h"
#include "cli/doctor/check.h"
#include "cli/doctor/gate_judge.h"
#include "cli/doctor/forecast.h"
#include "cli/flags/lent_flags.h"
#include "coordinator/client/gate_client.h"
#include "worker/api/run_data.h"

namespace atl::cli {

// The gate to ask, and the identity to use.
struct GateSubject {
  std::string address;  // host:port
  std::string pin;
  std::string run_id;
  // From the join string. Empty: this machine is already enrolled.
  std::string token_id;
  std::string token_secret;
  // From the enrolment.
  std::string cert_pem;
  std::string key_pem;
  absl::Time certificate_end;
  std::string coordinator_address;
  std::vector<std::string> server_addresses;
  std::function<std::string()> data_token;  // As StoreAccess's.
  // Gets the run from the coordinator with the certificate.
  std::function<absl::StatusOr<v1::Run>()> get_run;
};

class VolunteerDoctor {
 public:
  struct Spec {
    std::optional<GateSubject> gate;  // nullopt: only the machine is checked.
    Proxy proxy;
    std::string state_directory;
    worker::LocalDataRights data_rights;
    std::string cache_directory;
    int64_t cache_bytes_max = 0;
    Lent lent;
    // Makes an opener of what the run names, for an island whose operator was
    // reached at `address`; it has this access to data, too.
    std::function<worker::StoreOpener(const std::string& address,
                                      worker::StoreAccess)>
        make_opener;
    absl::Duration patience = absl::Seconds(15);  // For all waits together.
    int stop_fd = -1;               // A waker that ends every wait.
    std::function<bool()> stopped;  // True once stop_fd is set.
  };

  VolunteerDoctor(const Spec& spec, Checks& checks);

  // Makes all checks.
  void Run();

  // The run's spec (perhaps a RunPreview's), if it was found.
  const std::optional<v1::RunSpec>& run() const { return run_; }
  // If it was measured both ways.
  const std::optional<LinkFacts>& link() const { return link_; }

 private:
  void CheckGate();
  coordinator::GateClientOptions GateOptions(absl::Duration timeout) const;
  // False: the gate cannot be asked.
  bool CheckWay();
  bool CheckTls();
  void CheckToken(const v1::GateResponse& response);
  void CheckEnrolment();
  void CheckVersion(const std::string& coordinator_version);
  // Connects to a service, and looks which islands it admits.
  Dialled Look(const std::string& address) const;
  void CheckServices();
  // Without a gate: whether there is data at --data.
  void CheckData();
  void CheckMachine();
  void CheckLink();

  absl::StatusOr<UniqueFd> Dial(const std::string& address) const;
  bool IsDirect(const HostPort& target) const {
    return !spec_.proxy.Serves(target.host);
  }
  // The limits of a wait of `span` at most.
  net::WaitLimits Within(absl::Duration span) const;
  bool stopped() const { return spec_.stopped && spec_.stopped(); }

  const Spec spec_;
  Checks& checks_;
  const absl::Time deadline_;
  std::optional<v1::GateResponse> answer_;
  std::string root_pem_;  // The root that the pin names.
  std::vector<std::string> coordinator_addresses_;
  std::vector<std::string> server_addresses_;
  std::optional<v1::RunSpec> run_;
  absl::Duration round_trip_;  // To the gate.
  std::optional<LinkFacts> link_;
};

}  // namespace atl::cli
