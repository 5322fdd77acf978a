#include "worker/sdk/remote_trainer.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/layout/held_layout.h"
#include "base/status/refusal.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "worker/island/group/island_group.h"

namespace atl::worker {
namespace {

// A trainer as another program would write one: JSON over a socket.
class FakeTrainer {
 public:
  explicit FakeTrainer(const std::string& path) {
    fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address),
                           sizeof(address)) == 0;
  }
  ~FakeTrainer() {
    Close();
    for (auto& [memory, bytes] : regions_) ::munmap(memory, bytes);
  }

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  void Say(const std::string& text) {
    ASSERT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  // The next message; KIND_NOT_SET once the connection is closed.
  v1::TrainerMessage Hear() {
    std::string text(64 << 10, '\0');
    iovec bytes = {text.data(), text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header = {};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t length = ::recvmsg(fd_, &header, 0);
    v1::TrainerMessage message;
    if (length <= 0) return message;
    text.resize(static_cast<size_t>(length));
    EXPECT_TRUE(
        google::protobuf::util::JsonStringToMessage(text, &message).ok())
        << text;
    if (const cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
      struct stat found = {};
      EXPECT_EQ(::fstat(fd, &found), 0);
      const auto size = static_cast<size_t>(found.st_size);
      void* const memory =
          ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      EXPECT_NE(memory, MAP_FAILED);
      EXPECT_NE(::ftruncate(fd, 0), 0) << "the region can be resized";
      ::close(fd);
      regions_.emplace_back(static_cast<float*>(memory), size);
    }
    return message;
  }

  // Repeats a request as its answer.
  void Answer(const v1::TrainerMessage& request) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string text;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(request, &text,
                                                            options)
                    .ok());
    Say(text);
  }

  // `fields`: more of the hello's, each after a comma.
  void Handshake(const std::string& fields = "") {
    Say(absl::StrCat(R"({"seq":"1","hello":{"version":1)", fields, "}}"));
    hello = Hear().hello();
    for (int left = hello.fragment_count(); left > 0;) {
      const v1::TrainerMessage message = Hear();
      ASSERT_TRUE(message.has_layout());
      Answer(message);
      layouts.push_back(message.layout());
      if (message.layout().last()) --left;
    }
  }

  // Before the first step a trainer learns which state to have.
  template <typename... Said>
  void Start(const Said&... said) {
    Handshake(said...);
    const v1::TrainerMessage message = Hear();
    EXPECT_TRUE(message.has_load());
    EXPECT_EQ(message.load().save_id(), "");
    Answer(message);
  }

  float* region(int fragment) { return regions_[fragment].first; }

  v1::TrainerHello hello;
  std::vector<v1::TrainerLayout> layouts;

 private:
  int fd_ = -1;
  bool connected_ = false;
  std::vector<std::pair<float*, size_t>> regions_;
};

class RemoteTrainerTest : public ::testing::Test {
 protected:
  RemoteTrainerTest() {
    v1::Layout& layout = *spec_.mutable_layout();
    layout.set_fragment_count(2);
    AddTensor("a", {2, 3}, 0);
    AddTensor("b", {4}, 1);
    AddTensor("c", {1}, 0);
    path_ = absl::StrCat("/tmp/atoll-", ::getpid(), ".sock");
    host_ = TrainerHost::Start(path_).value();
    hello_.set_run_id("spring");
    hello_.set_run_uid("u");
  }

  void AddTensor(const std::string& name, std::vector<int64_t> shape,
                 int fragment) {
    v1::TensorSpec& tensor = *spec_.mutable_layout()->add_tensors();
    tensor.set_name(name);
    tensor.mutable_shape()->Add(shape.begin(), shape.end());
    tensor.set_dtype(v1::DATA_TYPE_F32);
    tensor.set_tensor_class(v1::TENSOR_CLASS_MATRIX);
    tensor.set_fragment(fragment);
    tensor.mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
  }

  absl::StatusOr<std::unique_ptr<RemoteTrainer>> Create() {
    return RemoteTrainer::Create(*host_, hello_, spec_, join_,
                                 stop_.get_token());
  }

  // Runs `script` as the trainer while `exchange` runs here.
  void Together(const std::function<void(FakeTrainer&)>& script,
                const std::function<void()>& exchange) {
    std::thread thread([&] {
      FakeTrainer trainer(path_);
      ASSERT_TRUE(trainer.connected());
      script(trainer);
    });
    exchange();
    thread.join();
  }

  HeldPiece Piece(int32_t fragment) {
    const RunLayout layout = RunLayout::Create(spec_.layout()).value();
    return HeldLayout(layout).pieces(fragment).front();
  }

  v1::RunSpec spec_;
  v1::TrainerHello hello_;
  std::string path_;
  std::unique_ptr<TrainerHost> host_;
  TrainerHost::Join join_ = [](v1::TrainerJoin& place) {
    place.set_slot(4);
    place.set_data_shard(1);
    place.set_data_shard_count(3);
    return absl::OkStatus();
  };
  std::stop_source stop_;
};

TEST_F(RemoteTrainerTest, ATrainerLearnsTheRunAndTheLayout) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Handshake();
        EXPECT_EQ(trainer.hello.run_id(), "spring");
        EXPECT_EQ(trainer.hello.fragment_count(), 2);
        ASSERT_EQ(trainer.layouts.size(), 2u);
        const v1::TrainerLayout& first = trainer.layouts[0];
        EXPECT_EQ(first.element_count(), 7);
        EXPECT_TRUE(first.last());
        ASSERT_EQ(first.tensors_size(), 2);
        EXPECT_EQ(first.tensors(1).name(), "c");
        EXPECT_EQ(first.tensors(1).element_offset(), 6);
        EXPECT_EQ(trainer.layouts[1].element_count(), 4);
      },
      [&] { EXPECT_TRUE(Create().ok()); });
}

TEST_F(RemoteTrainerTest, ALayoutOfManyTensorsTakesSeveralPackets) {
  for (int i = 0; i < 3000; ++i) AddTensor(absl::StrCat("tensor.", i), {1}, 1);
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Handshake();
        ASSERT_GT(trainer.layouts.size(), 3u);
        int count = 0;
        for (const v1::TrainerLayout& layout : trainer.layouts) {
          count += layout.tensors_size();
        }
        EXPECT_EQ(count, 3003);
        EXPECT_TRUE(trainer.layouts[0].last());
        EXPECT_FALSE(trainer.layouts[1].last());
        EXPECT_TRUE(trainer.layouts.back().last());
        EXPECT_EQ(trainer.layouts.back().tensors().rbegin()->element_offset(),
                  3003);
      },
      [&] { EXPECT_TRUE(Create().ok()); });
}

TEST_F(RemoteTrainerTest, ValuesTravelThroughSharedMemory) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start();
        v1::TrainerMessage message = trainer.Hear();
        ASSERT_TRUE(message.has_write());
        EXPECT_EQ(message.write().fragments_size(), 1);
        EXPECT_EQ(trainer.region(1)[2], 5.0f);
        trainer.Answer(message);
        message = trainer.Hear();
        ASSERT_TRUE(message.has_train());
        EXPECT_EQ(message.train().step(), 7);
        EXPECT_EQ(message.train().step_count(), 3);
        trainer.region(1)[2] = 6.0f;
        trainer.Say(absl::StrCat(
            R"({"seq":")", message.seq(), R"(","progress":{"step_count":"1"}})"));
        trainer.Say(absl::StrCat(
            R"({"seq":")", message.seq(),
            R"(","train":{"step_count":"3","token_count":12,"loss":1.5}})"));
        message = trainer.Hear();
        ASSERT_TRUE(message.has_read());
        EXPECT_EQ(message.read().fragments(0), 1);
        trainer.Answer(message);
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok()) << trainer.status();
        const HeldPiece piece = Piece(1);
        ASSERT_TRUE((*trainer)->Acquire({1}, LocalAccess::kReplace).ok());
        (*trainer)->Local(1, piece)[2] = 5.0f;
        (*trainer)->MarkWritten(1);
        const auto step = (*trainer)->Train({.step = 7, .step_count_max = 3});
        ASSERT_TRUE(step.ok()) << step.status();
        EXPECT_EQ(step->step_count, 3);
        EXPECT_EQ(step->token_count, 12);
        EXPECT_EQ(step->loss, 1.5f);
        ASSERT_TRUE((*trainer)->Acquire({1}, LocalAccess::kRead).ok());
        EXPECT_EQ((*trainer)->Local(1, piece)[2], 6.0f);
        // The region has it already: asks no more.
        EXPECT_TRUE((*trainer)->Acquire({1}, LocalAccess::kRead).ok());
      });
}

// A trainer that has kept 2 steps since the save "a", and then saved "b".
constexpr char kKept[] =
    R"(,"has_state":true,"standings":[{"save_id":"b"},{"save_id":"a",)"
    R"("step_count":"2","step":"6","version":"3","lr_scale":1,)"
    R"("data_shard":1,"data_position":"40"}])";
const StepRequest kSame = {.step = 6,
                           .step_count_max = 4,
                           .version = 3,
                           .data_shard = 1,
                           .data_position = 40};

class KeptStepsTest : public RemoteTrainerTest {
 protected:
  KeptStepsTest() { spec_.mutable_schedule()->set_timing(v1::TIMING_STRICT); }

  // Returns the requests that the trainer hears from its hello to the train
  // of `request`.
  std::string Asked(const std::string& save_id, const StepRequest& request,
                    const std::function<void(RemoteTrainer&)>& before = {}) {
    std::string asked;
    Together(
        [&](FakeTrainer& trainer) {
          trainer.Handshake(kKept);
          while (true) {
            v1::TrainerMessage message = trainer.Hear();
            if (message.has_end()) return;
            ASSERT_NE(message.kind_case(), v1::TrainerMessage::KIND_NOT_SET);
            if (message.has_load()) {
              absl::StrAppend(&asked, message.load().keep() ? "keep " : "load ",
                              message.load().save_id(), "; ");
            } else if (message.has_train()) {
              absl::StrAppend(&asked, "train after ",
                              message.train().kept_step_count());
              message.mutable_train()->set_loss(1);
            } else {
              absl::StrAppend(&asked, message.has_write() ? "write; " : "?; ");
            }
            trainer.Answer(message);
          }
        },
        [&] {
          const auto trainer = Create();
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          if (before) before(**trainer);
          ASSERT_TRUE((*trainer)->Load({.save_id = save_id}).ok());
          ASSERT_TRUE((*trainer)->Acquire({0, 1}, LocalAccess::kReplace).ok());
          for (const int32_t f : {0, 1}) (*trainer)->MarkWritten(f);
          const auto step = (*trainer)->Train(request);
          ASSERT_TRUE(step.ok()) << step.status();
          kept_step_count_ = step->kept_step_count;
          host_->End(absl::OkStatus());
        });
    return asked;
  }

  int64_t kept_step_count_ = 0;
};

TEST_F(KeptStepsTest, TheSameTrainGoesOnWithoutALoadAndAWrite) {
  EXPECT_EQ(Asked("a", kSame), "keep a; train after 2");
  EXPECT_EQ(kept_step_count_, 2);
}

TEST_F(KeptStepsTest, ASaveThatIsTheStateIsNotLoaded) {
  EXPECT_EQ(Asked("b", kSame), "keep b; write; train after 0");
  EXPECT_EQ(kept_step_count_, 0);
}

TEST_F(KeptStepsTest, AStrictRunGoesBackIfNothingFits) {
  EXPECT_EQ(Asked("c", kSame), "load c; write; train after 0");
  for (const StepRequest& other :
       {StepRequest{7, 4, 1.0, 3, 1, 40}, StepRequest{6, 1, 1.0, 3, 1, 40},
        StepRequest{6, 4, 0.5, 3, 1, 40}, StepRequest{6, 4, 1.0, 4, 1, 40},
        StepRequest{6, 4, 1.0, 3, 0, 40}, StepRequest{6, 4, 1.0, 3, 1, 48}}) {
    EXPECT_EQ(Asked("a", other), "load a; write; train after 0");
  }
}

TEST_F(KeptStepsTest, AnElasticRunKeepsTheStateOfALiveTrainer) {
  spec_.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  EXPECT_EQ(Asked("c", kSame), "keep c; train after 2");
  EXPECT_EQ(Asked("", {.step = 8, .step_count_max = 4}),
            "keep ; write; train after 0");
}

TEST_F(KeptStepsTest, OnlyTheFirstLoadOfAConnectionIsKept) {
  spec_.mutable_schedule()->set_timing(v1::TIMING_ELASTIC);
  const auto reset = [](RemoteTrainer& trainer) {
    EXPECT_TRUE(trainer.keeps_state());
    ASSERT_TRUE(trainer.Reset().ok());
    ASSERT_TRUE(trainer.Acquire({0}, LocalAccess::kRead).ok());
    EXPECT_FALSE(trainer.keeps_state());
  };
  EXPECT_EQ(Asked("c", kSame, reset),
            "keep ; ?; load c; write; train after 0");
}

TEST_F(KeptStepsTest, StepsAreNotKeptWhereAnchorsMoveInARound) {
  v1::ScheduleSpec& schedule = *spec_.mutable_schedule();
  schedule.set_timing(v1::TIMING_ELASTIC);
  schedule.set_max_staleness(4);
  EXPECT_EQ(Asked("a", kSame), "keep a; write; train after 0");
  schedule.set_max_staleness(0);
  schedule.set_overlap_step_count(2);
  EXPECT_EQ(Asked("a", kSame), "keep a; write; train after 0");
}

TEST_F(KeptStepsTest, AWriteBeforeTheLoadDropsThem) {
  const auto show = [](RemoteTrainer& trainer) {
    trainer.MarkWritten(0);
    ASSERT_TRUE(trainer.Show().ok());
  };
  EXPECT_EQ(Asked("a", kSame, show), "write; load a; write; train after 0");
  EXPECT_EQ(Asked("b", kSame, show), "write; keep b; write; train after 0");
}

TEST_F(KeptStepsTest, NothingIsEvaluatedBeforeKeptSteps) {
  const auto load = [](RemoteTrainer& trainer) {
    EXPECT_TRUE(trainer.CanEvaluate().value());
    ASSERT_TRUE(trainer.Load({.save_id = "a"}).ok());
    EXPECT_FALSE(trainer.CanEvaluate().value());
    ASSERT_TRUE(trainer.Show().ok());  // The run has ended.
    EXPECT_TRUE(trainer.CanEvaluate().value());
  };
  EXPECT_EQ(Asked("b", kSame, load), "load b; write; train after 0");
}

TEST_F(RemoteTrainerTest, StatesHaveNames) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Handshake();
        const v1::TrainerMessage save = trainer.Hear();
        EXPECT_EQ(save.save().save_id(), "1-0-3");
        trainer.Answer(save);
        const v1::TrainerMessage load = trainer.Hear();
        EXPECT_EQ(load.load().save_id(), "1-0-3");
        trainer.Say(absl::StrCat(R"({"seq":)", load.seq(),
                                 R"(,"error":{"code":"NOT_FOUND","reason":)"
                                 R"("NO_STATE","message":"there is none"}})"));
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok());
        const auto state = (*trainer)->Save("1-0-3");
        ASSERT_TRUE(state.ok());
        const absl::Status loaded = (*trainer)->Load(*state);
        EXPECT_TRUE(absl::IsNotFound(loaded)) << loaded;
        // An error is no loss: the trainer is still there.
        EXPECT_TRUE((*trainer)->lost().ok());
        const float moment = 1;
        EXPECT_TRUE(absl::IsDataLoss(
            (*trainer)->Load({.first_moment = {&moment, 1}})));
      });
}

TEST_F(RemoteTrainerTest, ATrainerThatIsGoneIsALostProcess) {
  for (const bool says_so : {false, true}) {
    Together(
        [&](FakeTrainer& trainer) {
          trainer.Start();
          const v1::TrainerMessage train = trainer.Hear();
          if (says_so) {
            trainer.Say(absl::StrCat(
                R"({"seq":)", train.seq(),
                R"(,"error":{"code":"UNAVAILABLE","message":"restarts"}})"));
          }
          trainer.Close();
        },
        [&] {
          const auto trainer = Create();
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          const absl::Status status = (*trainer)->Train({}).status();
          EXPECT_TRUE(IsProcessLost(status)) << status;
          EXPECT_TRUE(IsProcessLost((*trainer)->lost()));
        });
  }
  // The next one connects, and the regions are still there.
  Together([&](FakeTrainer& trainer) { trainer.Handshake(); },
           [&] { EXPECT_TRUE(Create().ok()); });
}

TEST_F(RemoteTrainerTest, WrongMessagesEndTheConnectionAndNotTheIsland) {
  const std::string bad[] = {
      "{", "{}", R"({"seq":"1","train":{}})",
      R"({"seq":"99","train":{"step_count":"1"}})",
      R"({"seq":"4","save":{"save_id":"x"}})", std::string(1 << 10, '[')};
  for (const std::string& text : bad) {
    Together(
        [&](FakeTrainer& trainer) {
          trainer.Start();
          EXPECT_TRUE(trainer.Hear().has_train());
          trainer.Say(text);
          EXPECT_FALSE(trainer.Hear().has_train());
        },
        [&] {
          const auto trainer = Create();
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          EXPECT_TRUE(IsProcessLost((*trainer)->Train({}).status())) << text;
        });
  }
}

TEST_F(RemoteTrainerTest, AnUnreadablePacketIsToldOnOneLineOfText) {
  const std::pair<std::string, std::string> cases[] = {
      {"\x1b[2J\n\xff", "\\x1b[2J\\n\\xff"},
      {R"({"seq":"1","train":{}})", "not train"}};
  for (const auto& [packet, said] : cases) {
    std::thread other([&] {
      FakeTrainer trainer(path_);
      trainer.Say(packet);
      const v1::TrainerError error = trainer.Hear().error();
      EXPECT_EQ(error.reason(), "UNREADABLE_MESSAGE");
      EXPECT_TRUE(absl::EndsWith(error.message(), said)) << error.message();
      stop_.request_stop();
    });
    EXPECT_TRUE(absl::IsCancelled(Create().status()));
    other.join();
    stop_ = std::stop_source();
  }
}

TEST_F(RemoteTrainerTest, NumbersThatNobodyCanHaveAreRefused) {
  const std::string bad[] = {
      R"("step_count":"2","loss":1)", R"("step_count":"-1","loss":1)",
      R"("step_count":"1","token_count":"-5","loss":1)",
      R"("step_count":"1","token_count":"4611686018427387904","loss":1)",
      R"("step_count":"1","paused_seconds":"Infinity")",
      R"("step_count":"1","paused_seconds":-1)",
      R"("step_count":"1","index_digest":"0d")",
      absl::StrCat(R"("step_count":"1","index_digest":")",
                   std::string(64, ' '), R"(")"),
      R"("step_count":"1","loss":"NaN")",
      R"("step_count":"1","loss":"-Infinity")"};
  for (const std::string& fields : bad) {
    Together(
        [&](FakeTrainer& trainer) {
          trainer.Start();
          const v1::TrainerMessage train = trainer.Hear();
          trainer.Say(absl::StrCat(R"({"seq":)", train.seq(), R"(,"train":{)",
                                   fields, "}}"));
        },
        [&] {
          const auto trainer = Create();
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          const absl::Status status = (*trainer)->Train({}).status();
          EXPECT_TRUE(absl::IsInvalidArgument(status) ||
                      absl::IsInternal(status))
              << status;
        });
    host_->End(absl::OkStatus());
  }
}

TEST_F(RemoteTrainerTest, ALossThatIsNotFiniteBlamesAllStepsOfItsMean) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start();
        const v1::TrainerMessage train = trainer.Hear();
        trainer.Say(absl::StrCat(R"({"seq":)", train.seq(),
                                 R"(,"train":{"step_count":"3","loss":"NaN"}})"));
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok()) << trainer.status();
        const absl::Status status =
            (*trainer)->Train({.step = 40, .step_count_max = 5}).status();
        EXPECT_TRUE(absl::StrContains(status.message(),
                                      "3 steps from step 40 is nan"))
            << status;
      });
}

TEST_F(RemoteTrainerTest, NumbersOfItsOwnAreItsMetrics) {
  std::string many = R"("step_count":"1","loss":1,"metrics":{)";
  for (int i = 0; i < 33; ++i) {
    absl::StrAppend(&many, i == 0 ? "" : ",", "\"m", i, "\":1");
  }
  const std::string answers[] = {
      R"("step_count":"1","loss":1,"metrics":{"accuracy":0.5,"a/b-c":"NaN"})",
      R"("step_count":"1","loss":1,"metrics":{"two words":0.5})", many + "}"};
  for (const std::string& fields : answers) {
    Together(
        [&](FakeTrainer& trainer) {
          trainer.Start();
          const v1::TrainerMessage train = trainer.Hear();
          trainer.Say(absl::StrCat(R"({"seq":)", train.seq(), R"(,"train":{)",
                                   fields, "}}"));
        },
        [&] {
          const auto trainer = Create();
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          const auto step = (*trainer)->Train({});
          if (&fields != &answers[0]) {
            EXPECT_TRUE(absl::IsInvalidArgument(step.status()))
                << step.status();
            return;
          }
          ASSERT_TRUE(step.ok()) << step.status();
          EXPECT_EQ(step->metrics.at("accuracy"), 0.5);
        });
    host_->End(absl::OkStatus());
  }
}

TEST_F(RemoteTrainerTest, ATrainerLearnsItsDataShardBeforeItsHello) {
  hello_.set_island_id("kitchen");
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(R"({"seq":"1","join":{"version":1}})");
        const v1::TrainerMessage message = trainer.Hear();
        EXPECT_EQ(message.seq(), 1u);
        const v1::TrainerJoin& place = message.join();
        EXPECT_EQ(place.version(), 1);
        EXPECT_EQ(place.run_uid(), "u");
        EXPECT_EQ(place.island_id(), "kitchen");
        EXPECT_EQ(place.slot(), 4);
        EXPECT_EQ(place.data_shard(), 1);
        EXPECT_EQ(place.data_shard_count(), 3);
        trainer.Handshake();
        EXPECT_EQ(trainer.layouts.size(), 2u);
      },
      [&] { EXPECT_TRUE(Create().ok()); });
}

TEST_F(RemoteTrainerTest, ARefusedJoinIsToldAndTheNextTrainerMayCome) {
  int asked = 0;
  join_ = [&](v1::TrainerJoin&) {
    ++asked;
    return Refuse(absl::StatusCode::kPermissionDenied, "ISLAND_REMOVED",
                  "an operator removed island kitchen");
  };
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(R"({"seq":"1","join":{"version":1}})");
        const v1::TrainerError error = trainer.Hear().error();
        EXPECT_EQ(error.code(), "PERMISSION_DENIED");
        EXPECT_EQ(error.reason(), "ISLAND_REMOVED");
        EXPECT_EQ(error.message(), "an operator removed island kitchen");
        FakeTrainer next(path_);
        ASSERT_TRUE(next.connected());
        next.Handshake();
      },
      [&] { EXPECT_TRUE(Create().ok()); });
  EXPECT_EQ(asked, 1);
}

TEST_F(RemoteTrainerTest, ATrainerThatEndsBetweenItsJoinAndItsHelloIsLost) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(R"({"seq":"1","join":{"version":1}})");
        EXPECT_TRUE(trainer.Hear().has_join());
        trainer.Close();
      },
      [&] {
        const absl::Status status = Create().status();
        EXPECT_TRUE(IsProcessLost(status)) << status;
      });
  EXPECT_FALSE(host_->lost().ok());
}

TEST_F(RemoteTrainerTest, ATrainerThatRefusesTheRunAfterItsJoinEndsTheIsland) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(R"({"seq":"1","join":{"version":1}})");
        EXPECT_TRUE(trainer.Hear().has_join());
        trainer.Say(R"({"seq":"2","hello":{"version":1}})");
        EXPECT_TRUE(trainer.Hear().has_hello());
        EXPECT_TRUE(trainer.Hear().has_layout());
        trainer.Say(R"({"seq":"1","error":{"code":"FAILED_PRECONDITION",)"
                    R"("reason":"OTHER_LAYOUT","message":"other tensors"}})");
      },
      [&] {
        const absl::Status status = Create().status();
        EXPECT_TRUE(HasReason(status, "OTHER_LAYOUT")) << status;
      });
}

TEST_F(RemoteTrainerTest, AStopEndsTheWaitForTheHelloThatFollowsAJoin) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(R"({"seq":"1","join":{"version":1}})");
        EXPECT_TRUE(trainer.Hear().has_join());
        stop_.request_stop();
        EXPECT_EQ(trainer.Hear().error().code(), "CANCELLED");
      },
      [&] { EXPECT_TRUE(absl::IsCancelled(Create().status())); });
}

TEST_F(RemoteTrainerTest, DigestsAndWarningsPass) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(
            R"({"seq":"1","hello":{"version":1,"frozen_digest":"f0"}})");
        for (int left = trainer.Hear().hello().fragment_count(); left > 0;) {
          const v1::TrainerMessage message = trainer.Hear();
          trainer.Answer(message);
          if (message.layout().last()) --left;
        }
        trainer.Answer(trainer.Hear());  // load
        v1::TrainerMessage train = trainer.Hear();
        train.mutable_train()->set_index_digest(std::string(64, 'd'));
        trainer.Answer(train);
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok());
        EXPECT_EQ((*trainer)->frozen_digest(), "f0");
        const auto result =
            (*trainer)->Train({});
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->index_digest, std::string(64, 'd'));
      });
}

TEST_F(RemoteTrainerTest, AWaitForATrainerHasABound) {
  const auto trainer = RemoteTrainer::Create(*host_, hello_, spec_, join_, {},
                                             absl::InfinitePast());
  EXPECT_TRUE(absl::IsDeadlineExceeded(trainer.status())) << trainer.status();
}

TEST_F(RemoteTrainerTest, ATrainersOwnPauseIsNoTrainingTime) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start();
        const v1::TrainerMessage train = trainer.Hear();
        trainer.Say(absl::StrCat(
            R"({"seq":)", train.seq(),
            R"(,"train":{"step_count":"1","loss":1,"paused_seconds":1e9}})"));
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok()) << trainer.status();
        const auto step = (*trainer)->Train({});
        ASSERT_TRUE(step.ok()) << step.status();
        EXPECT_EQ(step->begin, step->end);
      });
}

TEST_F(RemoteTrainerTest, TheFingerprintIsThatOfTheTrainersData) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Say(
            R"({"seq":"1","hello":{"version":1,"data_fingerprint":"f00"}})");
        for (int i = 0; i < 3; ++i) {
          const v1::TrainerMessage message = trainer.Hear();
          if (message.has_layout()) trainer.Answer(message);
        }
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok()) << trainer.status();
        EXPECT_EQ((*trainer)->data_fingerprint(), "f00");
      });
}

TEST_F(RemoteTrainerTest, TheUnitIsThatOfTheTrainersHello) {
  const std::pair<const char*, v1::WeightUnit> cases[] = {
      {"", v1::WEIGHT_UNIT_TOKENS},
      {"samples", v1::WEIGHT_UNIT_SAMPLES},
      {"any", v1::WEIGHT_UNIT_STEPS}};  // The run's.
  spec_.set_weight_unit(v1::WEIGHT_UNIT_STEPS);
  for (const auto& [said, unit] : cases) {
    Together(
        [&](FakeTrainer& trainer) {
          trainer.Say(absl::StrCat(
              R"({"seq":"1","hello":{"version":1,"weight_unit":")", said,
              R"("}})"));
          for (int i = 0; i < 3; ++i) {
            const v1::TrainerMessage message = trainer.Hear();
            if (message.has_layout()) trainer.Answer(message);
          }
        },
        [&] {
          const auto trainer = Create();
          ASSERT_TRUE(trainer.ok()) << trainer.status();
          EXPECT_EQ((*trainer)->weight_unit(), unit);
          host_->End(absl::OkStatus());
        });
  }
}

TEST_F(RemoteTrainerTest, InARunByStepsEachStepCountsOne) {
  spec_.set_weight_unit(v1::WEIGHT_UNIT_STEPS);
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start(R"(,"weight_unit":"any")");
        const v1::TrainerMessage train = trainer.Hear();
        trainer.Say(absl::StrCat(
            R"({"seq":)", train.seq(),
            R"(,"train":{"step_count":3,"token_count":900}})"));
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok()) << trainer.status();
        const auto step = (*trainer)->Train({.step_count_max = 3});
        ASSERT_TRUE(step.ok()) << step.status();
        EXPECT_EQ(step->token_count, 3);
        EXPECT_EQ(step->loss, std::nullopt);
      });
}

TEST_F(RemoteTrainerTest, AUnitThatDoesNotExistIsToldWhy) {
  std::thread other([&] {
    FakeTrainer trainer(path_);
    trainer.Say(
        R"({"seq":"1","hello":{"version":1,"weight_unit":"words"}})");
    EXPECT_TRUE(absl::StrContains(trainer.Hear().error().message(), "words"));
    stop_.request_stop();
  });
  EXPECT_TRUE(absl::IsCancelled(Create().status()));
  other.join();
}

TEST_F(RemoteTrainerTest, NoticesComeWithTheNextTrainOrTheEnd) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start();
        for (int i = 0; i < 2; ++i) {
          const v1::TrainerMessage train = trainer.Hear();
          ASSERT_EQ(train.train().notices_size(), i == 0 ? 16 : 0);
          if (i == 0) {
            EXPECT_EQ(train.train().notices(0), "refused 1");
          }
          trainer.Say(absl::StrCat(R"({"seq":)", train.seq(),
                                   R"(,"train":{"step_count":1,"loss":1}})"));
        }
        const v1::TrainerMessage end = trainer.Hear();
        ASSERT_EQ(end.end().notices_size(), 1);
        EXPECT_EQ(end.end().notices(0), std::string(512, 'x'));
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok());
        for (int i = 0; i < 17; ++i) {
          (*trainer)->Notify(absl::StrCat("refused ", i));
        }
        EXPECT_TRUE((*trainer)->Train({}).ok());
        EXPECT_TRUE((*trainer)->Train({}).ok());
        (*trainer)->Notify(std::string(600, 'x'));
        host_->End(absl::OkStatus());
      });
}

// While it owes an answer, and from its last word on.
TEST_F(RemoteTrainerTest, ATrainerThatSaysNothingIsSilent) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start();
        const v1::TrainerMessage train = trainer.Hear();
        const auto await = [&](absl::Duration silence) {
          while (host_->silence() < silence) std::this_thread::yield();
        };
        await(absl::Milliseconds(20));
        trainer.Say(absl::StrCat(R"({"seq":)", train.seq(),
                                 R"(,"progress":{"step_count":"1"}})"));
        while (host_->silence() >= absl::Milliseconds(20)) {
          std::this_thread::yield();
        }
        await(absl::Milliseconds(20));
        trainer.Say(absl::StrCat(R"({"seq":)", train.seq(),
                                 R"(,"train":{"step_count":1,"loss":1}})"));
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok());
        EXPECT_EQ((*trainer)->silence(), absl::ZeroDuration());
        EXPECT_TRUE((*trainer)->Train({}).ok());
        EXPECT_EQ((*trainer)->silence(), absl::ZeroDuration());
      });
}

TEST_F(RemoteTrainerTest, AnotherVersionIsToldWhy) {
  std::thread other([&] {
    FakeTrainer trainer(path_);
    trainer.Say(R"({"seq":"1","hello":{"version":2}})");
    const v1::TrainerMessage answer = trainer.Hear();
    EXPECT_EQ(answer.error().code(), "UNIMPLEMENTED");
    EXPECT_EQ(answer.error().reason(), "TRAINER_VERSION");
    EXPECT_TRUE(absl::StrContains(answer.error().message(), "version 2"));
    EXPECT_EQ(trainer.Hear().kind_case(), v1::TrainerMessage::KIND_NOT_SET);
    stop_.request_stop();
  });
  EXPECT_TRUE(absl::IsCancelled(Create().status()));
  other.join();
}

TEST_F(RemoteTrainerTest, AnInterruptEndsALongTrain) {
  Together(
      [&](FakeTrainer& trainer) {
        trainer.Start();
        const v1::TrainerMessage train = trainer.Hear();
        host_->Interrupt(/*at_once=*/false);
        EXPECT_TRUE(trainer.Hear().has_interrupt());
        trainer.Say(absl::StrCat(R"({"seq":)", train.seq(),
                                 R"(,"train":{"step_count":2,"loss":1}})"));
        // The next one is not told again.
        EXPECT_TRUE(trainer.Hear().has_train());
        host_->Interrupt(/*at_once=*/true);
        const v1::TrainerMessage end = trainer.Hear();
        EXPECT_EQ(end.end().code(), "CANCELLED");
        EXPECT_EQ(end.end().reason(), "ISLAND_REMOVED");
        EXPECT_EQ(end.end().message(), "stopped");
      },
      [&] {
        const auto trainer = Create();
        ASSERT_TRUE(trainer.ok());
        EXPECT_EQ((*trainer)->Train({.step_count_max = 500})->step_count, 2);
        EXPECT_TRUE(absl::IsCancelled(
            (*trainer)->Train({.step_count_max = 500}).status()));
        host_->End(Refuse(absl::StatusCode::kCancelled, "ISLAND_REMOVED",
                          "stopped"));
      });
}

TEST_F(RemoteTrainerTest, OneIslandListensAtAPath) {
  EXPECT_TRUE(absl::IsAlreadyExists(TrainerHost::Start(path_).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(TrainerHost::Start(std::string(200, 'x')).status()));
  host_.reset();
  EXPECT_TRUE(TrainerHost::Start(path_).ok());
}

}  // namespace
}  // namespace atl::worker
