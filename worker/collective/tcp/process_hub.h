// Accepts and watches the connections of one process of a world.
//
// One thread accepts connections, does handshakes, reads first messages, and
// watches the control connections to other processes. It closes a connection
// that does not prove the secret and state its purpose in time. If there are
// too many of those it closes the oldest. A connection for the bytes of a group
// is parked until its rank takes it. Thread-safe.

#pragma once

#include <poll.h>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/io/unique_fd.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "worker/collective/group.h"
#include "worker/collective/remote.h"
#include "worker/collective/tcp/connection.h"
#include "worker/collective/tcp/message.h"

namespace atl::collective {

// Timeouts of a hub, in addition to the deadlines of its calls. All > 0.
struct HubTimeouts {
  // From accept to the first message.
  absl::Duration hello = absl::Seconds(10);
  // To dial a rank of another process and finish the handshake.
  absl::Duration dial = absl::Seconds(30);
  // For a joined process to take the roster.
  absl::Duration roster_send = absl::Seconds(10);
  // Until the thread has read all news.
  absl::Duration news = absl::Seconds(1);
};

class ProcessHub : public RemoteWorld {
 public:
  struct Identity {
    int process_index = 0;
    int process_count = 1;
    int rank_count = 1;
    std::string layout;
    bool calls_in_the_clear = false;
    int strangers_max = 1024;
    std::shared_ptr<const WorldKey> key;
    HubTimeouts timeouts = {};
    // For timeouts.hello; outlives the hub.
    const Clock* clock = &SystemClock();
  };

  static absl::StatusOr<std::unique_ptr<ProcessHub>> Create(Identity identity,
                                                            UniqueFd listener);
  ~ProcessHub() override;

  // Process 0: waits until all have joined, sends each the table, and returns
  // it. `own` is its entry. DEADLINE_EXCEEDED: names the missing processes, and
  // the last refused one with the reason.
  absl::StatusOr<std::vector<ProcessEntry>> CollectRoster(ProcessEntry own,
                                                          absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Other processes: takes the connection to process 0 and its roster.
  void AdoptRoster(Connection control, std::vector<ProcessEntry> roster)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Dials lower processes and waits for higher ones, until every pair has a
  // control connection. From then on the end of one ends `world`, which must
  // outlive the hub's Stop().
  absl::Status ConnectAll(World* world, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Says goodbye and ends the thread. The world may end after it.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::unique_ptr<RemoteLinks>> Connect(
      const std::string& group, int rank, const std::vector<int>& world_ranks,
      absl::Time deadline) override;
  void ReadNews() override ABSL_LOCKS_EXCLUDED(mutex_);
  void TellBroken(const absl::Status& status) override;
  void TellLeft(const std::string& group, int rank,
                int64_t call_count) override;

 private:
  // Accepted, not yet identified. Used only by the thread.
  struct Stranger {
    Connection connection;
    absl::Time deadline;
    bool knows_secret = false;
    std::string buffer = {};
  };
  struct Control {
    Connection connection;
    std::string buffer = {};
    bool said_bye = false;
  };
  using LinkKey = std::tuple<std::string, int, int>;  // Group, from, to.

  ProcessHub(Identity identity, UniqueFd listener, UniqueFd waker);

  void Loop();
  // The thread cannot continue: ends the world and every wait.
  void Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void AcceptAll();
  // False: done with it, identified or refused.
  bool ReadStranger(Stranger& stranger) ABSL_LOCKS_EXCLUDED(mutex_);
  // The first message; nullopt while it is incomplete.
  absl::StatusOr<std::optional<Message>> ReadHello(Stranger& stranger);
  // Keeps the reason for the message of a wait that times out.
  void NoteRefusal(const Stranger& stranger, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Admit(const Message& hello, Stranger& stranger)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AdmitJoin(const Message& hello, Stranger& stranger)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadControl(int process) ABSL_LOCKS_EXCLUDED(mutex_);
  void HandleControl(int process, const Message& message)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ControlEnded(int process) ABSL_LOCKS_EXCLUDED(mutex_);
  void TellAll(const Message& message) ABSL_LOCKS_EXCLUDED(mutex_);
  Message Hello(MessageType type) const;
  // Waits until `ready`, the end of the world or the thread, or the deadline;
  // `what` explains a timeout in the message.
  absl::Status Await(absl::Time deadline, absl::FunctionRef<bool()> ready,
                     absl::FunctionRef<std::string()> what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitAll(absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MakeName(int process) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Identity identity_;
  const UniqueFd listener_;
  const UniqueFd waker_;
  std::thread thread_;

  std::list<Stranger> strangers_;

  Mutex mutex_;
  CondVar condition_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // Why the thread ended.
  // The thread's poll rounds: begun, ended, and up to which it must not block.
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ended_round_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t wanted_round_ ABSL_GUARDED_BY(mutex_) = 0;
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  World* world_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<std::optional<ProcessEntry>> joined_ ABSL_GUARDED_BY(mutex_);
  std::vector<ProcessEntry> roster_ ABSL_GUARDED_BY(mutex_);
  std::map<int, Control> controls_ ABSL_GUARDED_BY(mutex_);
  std::set<int> ended_ ABSL_GUARDED_BY(mutex_);  // Once complete.
  std::map<LinkKey, Connection> parked_ ABSL_GUARDED_BY(mutex_);
  std::string last_refusal_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::collective
