// A process reads from others' files what it would have written itself, or gets
// an error that names the missing parts.

#include "worker/save/save_set.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "atoll/v1/run.pb.h"
#include "base/codec/codec.h"
#include "base/io/files.h"
#include "base/io/forwarding_file_system.h"
#include "base/io/testing/fake_file_system.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/exchange.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

constexpr int64_t kBlock = 4096;
const SavePlace kPlace = {"/save", "run", "island"};

class CountingFileSystem : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) override {
    ++open_count;
    return ForwardingFileSystem::OpenForRead(path);
  }
  int open_count = 0;
};

class SaveSetTest : public testing::Test {
 protected:
  SaveSetTest() : seed_(std::random_device()()), random_(seed_) {
    std::cout << "seed " << seed_ << std::endl;
    EXPECT_TRUE(files_.CreateDirectories("/save").ok());
    v1::Layout layout;
    layout.set_fragment_count(2);
    for (const int64_t size : {2 * kBlock + 100, kBlock, 3 * kBlock, 7l}) {
      v1::TensorSpec* tensor = layout.add_tensors();
      tensor->set_name(absl::StrCat("t", layout.tensors_size()));
      tensor->add_shape(size);
      tensor->set_dtype(v1::DATA_TYPE_F32);
      tensor->set_tensor_class(v1::TENSOR_CLASS_MATRIX);
      tensor->set_fragment(size == kBlock ? 1 : 0);
      tensor->mutable_init()->set_kind(v1::INIT_KIND_CONSTANT);
    }
    layout_ = std::make_unique<RunLayout>(*RunLayout::Create(layout));
    for (const TensorPlace& tensor : layout_->tensors()) {
      for (int64_t at = 0; at < tensor.element_count; at += kBlock) {
        cuts_.push_back(tensor.model_offset + at);
      }
    }
    cuts_.push_back(layout_->element_count());
  }

  // Cuts the model into `count` parts of whole blocks; some may be empty.
  std::vector<HeldLayout> Cut(int count) {
    std::vector<int64_t> ends = {0, layout_->element_count()};
    for (int i = 1; i < count; ++i) {
      ends.push_back(cuts_[random_() % cuts_.size()]);
    }
    std::sort(ends.begin(), ends.end());
    std::vector<HeldLayout> parts;
    for (int i = 0; i < count; ++i) {
      parts.push_back(
          *HeldLayout::Create(*layout_, {{ends[i], ends[i + 1]}}));
    }
    return parts;
  }

  std::vector<HeldLayout> Halves() const {
    return {*HeldLayout::Create(*layout_, {{0, cuts_[3]}}),
            *HeldLayout::Create(*layout_,
                                {{cuts_[3], layout_->element_count()}})};
  }

  static float MakeValue(int array, int64_t element) {
    return static_cast<float>(100000 * array + element);
  }
  static char MakeByte(int32_t fragment, int64_t block, int64_t i) {
    return static_cast<char>(17 * fragment + 5 * block + i % 101);
  }

  // What a process that has `held` writes of the local checkpoint number `seq`.
  Save MakeSave(const HeldLayout& held, int64_t seq) const {
    Save save;
    save.header.summary.run_id = "run";
    save.header.summary.seq = seq;
    save.header.step = 10 * seq;
    save.header.summary.records_follow = true;
    save.header.name = absl::StrCat("save-", seq);
    if (!held.is_all()) save.header.held = held.spans();
    const auto fill = [&](int array, std::vector<float>& values) {
      for (const IndexRange span : held.spans()) {
        for (int64_t i = span.begin; i < span.end; ++i) {
          values.push_back(MakeValue(array, i));
        }
      }
    };
    fill(1, save.arrays.first_moment);
    fill(2, save.arrays.second_moment);
    fill(3, save.arrays.local);  // And no eager ones.
    for (int32_t f = 0; f < 2; ++f) {
      EncodedContribution& contribution = save.contributions.emplace_back();
      contribution.info.mutable_key()->set_fragment(f);
      contribution.info.mutable_key()->set_seq(seq);
      contribution.info.set_codec(ToProto(codec_));
      contribution.info.mutable_digest()->set_high(seq);
      const EncodedLayout encoded(*layout_, f, codec_,
                                  held.fragment_blocks(f));
      for (const IndexRange blocks : encoded.held()) {
        for (int64_t b = blocks.begin; b < blocks.end; ++b) {
          for (int64_t i = 0; i < encoded.ByteCount({b, b + 1}); ++i) {
            contribution.bytes.push_back(MakeByte(f, b, i));
          }
        }
      }
      SavedFeedback& feedback = save.feedback.emplace_back();
      feedback.key = contribution.info.key();
      for (const HeldPiece& piece : held.pieces(f)) {
        const int64_t begin = layout_->tensors()[piece.tensor].model_offset +
                              piece.tensor_offset;
        for (int64_t i = begin; i < begin + piece.element_count; ++i) {
          feedback.before.push_back(MakeValue(4, i));
          // The second fragment's is not in flight.
          if (f == 0) feedback.after.push_back(MakeValue(5, i));
        }
      }
    }
    return save;
  }

  absl::Status Write(const Save& save, int index, int count,
                     bool is_next = false) {
    SaveView view;
    view.arrays = {.first_moment = save.arrays.first_moment,
                   .second_moment = save.arrays.second_moment,
                   .local = save.arrays.local};
    for (const EncodedContribution& contribution : save.contributions) {
      view.contributions.push_back(&contribution);
    }
    std::vector<FeedbackView> feedback;
    for (const SavedFeedback& of : save.feedback) feedback.push_back(of.View());
    view.feedback = feedback;
    return WriteSave(files_, SavePath(kPlace, index, count, is_next),
                     save.header, view)
        .status();
  }

  // Appends record `record` of process `index`, after the whole save `seq`.
  void AppendRecord(const HeldLayout& held, int index, int count, int64_t seq,
                    int64_t record) {
    const Save save = MakeSave(held, seq + record + 1);
    SaveHeader header = save.header;
    header.name.clear();
    header.base = absl::StrCat("save-", seq);
    header.record_index = record;
    const std::vector<float> values = FragmentValues(held, 0, 6);
    const std::vector<float> foreseen = FragmentValues(held, 1, 7);
    SaveView view;
    view.contributions = {&save.contributions[1]};
    view.feedback = {save.feedback[1].View()};
    view.answers = {{{.clock = 5, .fragment = 0, .version = 3}, values}};
    view.foreseen = {{1, foreseen, foreseen}};
    const std::string path = RecordsPath(kPlace, index, count);
    int64_t offset = 0;
    if (record > 0) {
      const std::unique_ptr<RandomAccessFile> file = *files_.OpenForRead(path);
      offset = *file->Size();
    }
    ASSERT_TRUE(WriteRecord(files_, path, offset, header, view).ok());
  }

  std::vector<float> FragmentValues(const HeldLayout& held, int32_t f,
                                    int array) const {
    std::vector<float> values;
    for (const HeldPiece& piece : held.pieces(f)) {
      const int64_t begin =
          layout_->tensors()[piece.tensor].model_offset + piece.tensor_offset;
      for (int64_t i = begin; i < begin + piece.element_count; ++i) {
        values.push_back(MakeValue(array, i));
      }
    }
    return values;
  }

  void WriteAll(const std::vector<HeldLayout>& parts, int64_t seq) {
    const int count = static_cast<int>(parts.size());
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(Write(MakeSave(parts[i], seq), i, count).ok());
    }
  }

  absl::StatusOr<Save> Read(const SaveSet& set, const HeldLayout& held) {
    return ReadSaveSet(files_, kPlace, set, held, codec_);
  }

  static void ExpectSame(const Save& actual, const Save& expected) {
    EXPECT_EQ(SaveHeaderText(actual.header), SaveHeaderText(expected.header));
    EXPECT_EQ(actual.arrays.first_moment, expected.arrays.first_moment);
    EXPECT_EQ(actual.arrays.second_moment, expected.arrays.second_moment);
    EXPECT_EQ(actual.arrays.local, expected.arrays.local);
    EXPECT_TRUE(actual.arrays.eager_momentum.empty());
    EXPECT_TRUE(actual.arrays.eager_foreseen.empty());
    ASSERT_EQ(actual.contributions.size(), expected.contributions.size());
    for (size_t i = 0; i < expected.contributions.size(); ++i) {
      EXPECT_EQ(actual.contributions[i].info.SerializeAsString(),
                expected.contributions[i].info.SerializeAsString());
      EXPECT_EQ(actual.contributions[i].bytes,
                expected.contributions[i].bytes);
    }
    ASSERT_EQ(actual.feedback.size(), expected.feedback.size());
    for (size_t i = 0; i < expected.feedback.size(); ++i) {
      EXPECT_EQ(actual.feedback[i].key.SerializeAsString(),
                expected.feedback[i].key.SerializeAsString());
      EXPECT_EQ(actual.feedback[i].before, expected.feedback[i].before);
      EXPECT_EQ(actual.feedback[i].after, expected.feedback[i].after);
    }
  }

  void Damage(const std::string& path, int64_t offset) {
    const auto file = *files_.OpenForWrite(path);
    char byte = 0;
    ASSERT_EQ(*file->ReadAt(offset, absl::MakeSpan(&byte, 1)), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_TRUE(file->WriteAt(offset, absl::string_view(&byte, 1)).ok());
  }
  int64_t GetSize(const std::string& path) {
    return *(*files_.OpenForRead(path))->Size();
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  FakeFileSystem files_;
  std::unique_ptr<RunLayout> layout_;
  std::vector<int64_t> cuts_;  // In the model order, at blocks.
  const codec::Codec& codec_ = ToCodec(v1::CODEC_INT8);
};

TEST_F(SaveSetTest, AnyNumberOfProcessesReadsWhatAnyOtherWrote) {
  for (const int from : {1, 2, 3, 5}) {
    const std::vector<HeldLayout> writers = Cut(from);
    WriteAll(writers, 7);
    const FoundSaves found = FindSaves(files_, kPlace);
    EXPECT_TRUE(found.notes.empty());
    ASSERT_EQ(found.sets.size(), 1);
    EXPECT_EQ(found.sets[0].process_count, from);
    EXPECT_EQ(found.sets[0].files.size(), from);
    for (const int to : {1, 2, 3, 5}) {
      for (const HeldLayout& reader : Cut(to)) {
        const auto save = Read(found.sets[0], reader);
        ASSERT_TRUE(save.ok()) << save.status();
        ExpectSame(*save, MakeSave(reader, 7));
      }
    }
    RemoveOtherSaves(files_, kPlace, /*process_count=*/99);
    EXPECT_TRUE(FindSaves(files_, kPlace).sets.empty());
  }
}

TEST_F(SaveSetTest, TheNewestComesFirstWhoeverWroteIt) {
  WriteAll(Cut(2), 7);
  WriteAll(Cut(3), 9);
  ASSERT_TRUE(Write(MakeSave(HeldLayout(*layout_), 8), 0, 1).ok());
  const FoundSaves found = FindSaves(files_, kPlace);
  ASSERT_EQ(found.sets.size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(found.sets[i].outline.header.summary.seq, 9 - i);
  }
  const std::string save = *ReadFile(files_, "/save/run.island.save");
  // Names of other islands, and names that are nearly right.
  for (const char* name :
       {"run.island-2.save", "run2.island.save", "run.island.0-of-2.save.tmp",
        "run.island.00-of-2.save", "run.island.0-of-1.save",
        "run.island.save.next", "run.island.1-of-.save"}) {
    ASSERT_TRUE(WriteFileAtomically(files_, absl::StrCat("/save/", name), save)
                    .ok());
  }
  EXPECT_LE(FindSaves(files_, kPlace).sets.size(), 3);
  RemoveOtherSaves(files_, kPlace, 3);
  ASSERT_EQ(FindSaves(files_, kPlace).sets.size(), 1);
  EXPECT_EQ(FindSaves(files_, kPlace).sets[0].process_count, 3);
  EXPECT_TRUE(files_.Exists("/save/run.island-2.save"));
}

// A process died while files were replaced: some still have the next name.
TEST_F(SaveSetTest, FilesOfOneSaveAreOneUnderEitherName) {
  const std::vector<HeldLayout> writers = Halves();
  WriteAll(writers, 7);
  ASSERT_TRUE(Write(MakeSave(writers[0], 8), 0, 2).ok());
  ASSERT_TRUE(Write(MakeSave(writers[1], 8), 1, 2, /*is_next=*/true).ok());
  const FoundSaves found = FindSaves(files_, kPlace);
  ASSERT_EQ(found.sets.size(), 2);
  const HeldLayout all(*layout_);
  const auto newest = Read(found.sets[0], all);
  ASSERT_TRUE(newest.ok()) << newest.status();
  ExpectSame(*newest, MakeSave(all, 8));
  // A file of the previous one is gone.
  EXPECT_EQ(Read(found.sets[1], all).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(SaveSetTest, WhatIsMissingIsSaid) {
  const int64_t middle = cuts_[3], end = layout_->element_count();
  const std::vector<HeldLayout> writers = Halves();
  WriteAll(writers, 7);
  ASSERT_TRUE(files_.Remove("/save/run.island.1-of-2.save").ok());
  const FoundSaves found = FindSaves(files_, kPlace);
  ASSERT_EQ(found.sets.size(), 1);
  const auto save = Read(found.sets[0], HeldLayout(*layout_));
  ASSERT_EQ(save.status().code(), absl::StatusCode::kDataLoss);
  std::cout << save.status() << std::endl;
  for (const std::string& what :
       {absl::StrCat("[", middle, ", ", end, ")"),
        std::string("run.island.1-of-2.save"), std::string("--work-dir")}) {
    EXPECT_TRUE(absl::StrContains(save.status().message(), what)) << what;
  }
  // A process that needs nothing of the missing file can read.
  const auto own = Read(found.sets[0], writers[0]);
  ASSERT_TRUE(own.ok()) << own.status();
  ExpectSame(*own, MakeSave(writers[0], 7));
}

// An incomplete local checkpoint is detected without reading arrays.
TEST_F(SaveSetTest, NothingIsReadOfASaveThatIsNotComplete) {
  CountingFileSystem counting(files_);
  const HeldLayout all(*layout_);
  const auto read = [&](const HeldLayout& held) {
    const FoundSaves found = FindSaves(files_, kPlace);
    counting.open_count = 0;
    const absl::Status status =
        ReadSaveSet(counting, kPlace, found.sets[0], held, codec_).status();
    EXPECT_EQ(CheckSaveSet(kPlace, found.sets[0], held), status);
    return status;
  };
  const std::vector<HeldLayout> writers = Halves();
  WriteAll(writers, 7);
  EXPECT_TRUE(read(all).ok());
  EXPECT_EQ(counting.open_count, 2);
  EXPECT_TRUE(read(writers[1]).ok());
  EXPECT_EQ(counting.open_count, 1);
  ASSERT_TRUE(files_.Remove(SavePath(kPlace, 1, 2)).ok());
  EXPECT_EQ(read(all).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(counting.open_count, 0);
  // Two have the same elements.
  ASSERT_TRUE(Write(MakeSave(writers[0], 7), 1, 2).ok());
  EXPECT_EQ(read(all).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(counting.open_count, 0);
  // One is of a larger model.
  Save wrong = MakeSave(writers[1], 7);
  wrong.header.held = {{cuts_[3], layout_->element_count() + kBlock}};
  ASSERT_TRUE(Write(wrong, 1, 2).ok());
  EXPECT_EQ(read(all).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(counting.open_count, 0);
}

// A process's file exists under both names, or was copied to one of them.
TEST_F(SaveSetTest, OfTwoCopiesOneThatIsWholeIsRead) {
  const std::vector<HeldLayout> writers = Halves();
  const HeldLayout all(*layout_);
  const std::string paths[] = {SavePath(kPlace, 1, 2),
                               SavePath(kPlace, 1, 2, /*is_next=*/true)};
  const auto write = [&] {
    WriteAll(writers, 7);
    ASSERT_TRUE(Write(MakeSave(writers[1], 7), 1, 2, /*is_next=*/true).ok());
  };
  for (const std::string& damaged : paths) {
    write();
    Damage(damaged, GetSize(damaged) - 1);
    const FoundSaves found = FindSaves(files_, kPlace);
    EXPECT_TRUE(found.notes.empty());
    ASSERT_EQ(found.sets.size(), 1);
    EXPECT_EQ(found.sets[0].files.size(), 2);
    const auto save = Read(found.sets[0], all);
    ASSERT_TRUE(save.ok()) << save.status();
    ExpectSame(*save, MakeSave(all, 7));
  }
  write();
  for (const std::string& path : paths) Damage(path, GetSize(path) - 1);
  const absl::Status status =
      Read(FindSaves(files_, kPlace).sets[0], all).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), paths[0])) << status;
  // A file with other elements is no copy.
  write();
  ASSERT_TRUE(Write(MakeSave(writers[0], 7), 1, 2, /*is_next=*/true).ok());
  const FoundSaves found = FindSaves(files_, kPlace);
  ASSERT_EQ(found.notes.size(), 1);
  EXPECT_TRUE(absl::StrContains(found.notes[0], paths[1])) << found.notes[0];
  EXPECT_TRUE(Read(found.sets[0], all).ok());
}

TEST_F(SaveSetTest, ADamagedFileOfOneProcessIsNotUsed) {
  const std::vector<HeldLayout> writers = Halves();
  const HeldLayout all(*layout_);
  const std::string path = SavePath(kPlace, 1, 2);
  WriteAll(writers, 7);
  // Damage in the arrays is found when they are read.
  Damage(path, GetSize(path) - 1);
  FoundSaves found = FindSaves(files_, kPlace);
  ASSERT_EQ(found.sets.size(), 1);
  absl::Status status = Read(found.sets[0], all).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "checksum")) << status;
  EXPECT_TRUE(Read(found.sets[0], writers[0]).ok());
  // Damage in the header removes the file from the set.
  WriteAll(writers, 7);
  Damage(path, 40);
  found = FindSaves(files_, kPlace);
  ASSERT_EQ(found.notes.size(), 1);
  EXPECT_TRUE(absl::StrContains(found.notes[0], path)) << found.notes[0];
  ASSERT_EQ(found.sets.size(), 1);
  EXPECT_FALSE(Read(found.sets[0], all).ok());
}

// No two files may have one element, nor may a file claim what it lacks.
TEST_F(SaveSetTest, FilesThatDoNotFitTogetherAreNotUsed) {
  const HeldLayout all(*layout_);
  const HeldLayout first = *HeldLayout::Create(*layout_, {{0, cuts_[3]}});
  ASSERT_TRUE(Write(MakeSave(first, 7), 0, 2).ok());
  ASSERT_TRUE(Write(MakeSave(first, 7), 1, 2).ok());
  EXPECT_EQ(Read(FindSaves(files_, kPlace).sets[0], all).status().code(),
            absl::StatusCode::kDataLoss);
  const HeldLayout second = *HeldLayout::Create(
      *layout_, {{cuts_[3], layout_->element_count()}});
  const auto expect_refused = [&](const Save& wrong) {
    ASSERT_TRUE(Write(wrong, 1, 2).ok());
    const auto save = Read(FindSaves(files_, kPlace).sets[0], all);
    EXPECT_EQ(save.status().code(), absl::StatusCode::kDataLoss);
  };
  Save wrong = MakeSave(second, 7);
  wrong.arrays.local.clear();
  expect_refused(wrong);
  wrong = MakeSave(second, 7);
  wrong.arrays.first_moment.pop_back();
  expect_refused(wrong);
  wrong = MakeSave(second, 7);
  wrong.contributions[0].bytes.pop_back();
  expect_refused(wrong);
  wrong = MakeSave(second, 7);
  wrong.feedback[0].after.clear();
  expect_refused(wrong);
  wrong = MakeSave(second, 7);
  wrong.feedback.pop_back();
  expect_refused(wrong);
  wrong = MakeSave(second, 7);
  wrong.header.held = {{cuts_[3] + 1, layout_->element_count()}};
  expect_refused(wrong);
  ASSERT_TRUE(Write(MakeSave(second, 7), 1, 2).ok());
  EXPECT_TRUE(Read(FindSaves(files_, kPlace).sets[0], all).ok());
}

TEST_F(SaveSetTest, AnotherNumberOfProcessesReadsTheRecords) {
  for (int round = 0; round < 30; ++round) {
    const std::vector<HeldLayout> writers =
        Cut(1 + static_cast<int>(random_() % 4));
    const std::vector<HeldLayout> readers =
        Cut(1 + static_cast<int>(random_() % 4));
    const int count = static_cast<int>(writers.size());
    WriteAll(writers, 7);
    for (int64_t record = 0; record < 2; ++record) {
      for (int i = 0; i < count; ++i) {
        AppendRecord(writers[i], i, count, 7, record);
      }
    }
    const FoundSaves found = FindSaves(files_, kPlace);
    ASSERT_EQ(found.sets.size(), 1);
    const SaveSet& set = found.sets[0];
    ASSERT_EQ(set.records.size(), 2);
    EXPECT_EQ(set.newest().summary.seq, 9);
    for (const HeldLayout& held : readers) {
      for (size_t record = 0; record < 2; ++record) {
        const auto read =
            ReadRecordOfSet(files_, kPlace, set, record, held, codec_);
        ASSERT_TRUE(read.ok()) << read.status();
        const Save expected = MakeSave(held, 8 + record);
        ASSERT_EQ(read->contributions.size(), 1);
        EXPECT_EQ(read->contributions[0].bytes,
                  expected.contributions[1].bytes);
        EXPECT_EQ(read->feedback[0].before, expected.feedback[1].before);
        EXPECT_EQ(read->answers[0].values, FragmentValues(held, 0, 6));
        EXPECT_EQ(read->foreseen[0].foreseen, FragmentValues(held, 1, 7));
      }
    }
    RemoveOtherSaves(files_, kPlace, 99);
    EXPECT_TRUE(files_.List("/save")->empty());
  }
}

// A crash may leave the newest record in some files only.
TEST_F(SaveSetTest, OnlyRecordsThatAllFilesHaveCount) {
  const std::vector<HeldLayout> writers = Halves();
  WriteAll(writers, 7);
  AppendRecord(writers[0], 0, 2, 7, 0);
  AppendRecord(writers[0], 0, 2, 7, 1);
  EXPECT_TRUE(FindSaves(files_, kPlace).sets[0].records.empty());
  AppendRecord(writers[1], 1, 2, 7, 0);
  EXPECT_EQ(FindSaves(files_, kPlace).sets[0].records.size(), 1);
  // The next whole save does not have them.
  WriteAll(writers, 20);
  EXPECT_TRUE(FindSaves(files_, kPlace).sets[0].records.empty());
}

}  // namespace
}  // namespace atl::worker
