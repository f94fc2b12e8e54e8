#include "wire/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "pool/rollout.h"

namespace torchbeast {
namespace {

constexpr int kPlane = 6;  // Bytes.

Tensor Stack(BufferPool& pool, const std::vector<int>& planes) {
  Tensor tensor = pool.Empty(DType::kUint8, {static_cast<int64_t>(planes.size()), 2, 3});
  for (size_t i = 0; i < planes.size(); ++i) {
    std::memset(tensor.data + i * kPlane, planes[i], kPlane);
  }
  return tensor;
}

void AddResult(rpcenv::Reply* reply) {
  reply->add_reward(1.5F);
  reply->add_done(false);
  reply->add_truncated(true);
  reply->add_game_over(true);
  reply->add_episode_step(3);
  reply->add_episode_return(4.5F);
}

// Both ends of one stream. Each message is serialised and parsed in between.
class WireTest : public ::testing::Test {
 protected:
  rpcenv::Reply Send(const std::vector<Tensor>& observations, bool start) {
    if (!encoder_) encoder_ = std::make_unique<StepEncoder>(observations.size());
    encoder_->Begin(&reply_);
    for (const Tensor& observation : observations) {
      encoder_->Check(observation);
      encoder_->Append(observation, start, &reply_);
      AddResult(&reply_);
    }
    rpcenv::Reply received;
    if (!decoder_) *reply_.mutable_schema()->mutable_observation() = EncodeSpec(encoder_->spec());
    EXPECT_TRUE(received.ParseFromString(reply_.SerializeAsString()));
    if (!decoder_) decoder_ = std::make_unique<StepDecoder>(observations.size(), received);
    decoder_->Check(received);
    return received;
  }

  BufferPool pool_;
  rpcenv::Reply reply_;
  std::unique_ptr<StepEncoder> encoder_;
  std::unique_ptr<StepDecoder> decoder_;
};

TEST_F(WireTest, SendsOnlyTheNewestPlaneOfAMovingStack) {
  Send({Stack(pool_, {1, 1, 1, 1})}, true);
  const rpcenv::Reply second = Send({Stack(pool_, {1, 1, 1, 2})}, false);
  EXPECT_EQ(second.leaves(0).data().size(), static_cast<size_t>(kPlane));
  const Tensor previous = Stack(pool_, {1, 1, 1, 1});
  Tensor target = Stack(pool_, {0, 0, 0, 0});
  decoder_->ReadLeaf(second, 0, 0, previous.data, target.data);
  EXPECT_EQ(std::memcmp(target.data, Stack(pool_, {1, 1, 1, 2}).data, 4 * kPlane), 0);
  EXPECT_THROW(decoder_->ReadLeaf(second, 0, 0, nullptr, target.data), WireError);
}

TEST_F(WireTest, GivesUpOnWhatIsNoStack) {
  Send({Stack(pool_, {1, 2, 3})}, true);
  Send({Stack(pool_, {7, 8, 9})}, false);
  // This is a shift by chance: the leaf was not a frame stack in an earlier step.
  EXPECT_EQ(Send({Stack(pool_, {8, 9, 10})}, false).leaves(0).data().size(), 3U * kPlane);
}

TEST_F(WireTest, RandomEpisodesOfSeveralEnvironmentsArriveExactly) {
  std::mt19937 random(0);
  constexpr int kEnvironments = 3;
  std::vector<std::vector<int>> planes(kEnvironments, {0, 0, 0, 0});
  std::vector<Tensor> received;
  for (int e = 0; e < kEnvironments; ++e) received.push_back(Stack(pool_, {0, 0, 0, 0}));
  for (int step = 0; step < 300; ++step) {
    std::vector<Tensor> sent;
    // The flag belongs to one call: environments start episodes at different steps.
    const bool start = step == 0 || random() % 10 == 0;
    for (auto& stack : planes) {
      const int newest = static_cast<int>(random() % 200);
      if (start && random() % 2 == 0) {
        stack = {newest, newest, newest, newest};
      } else {
        stack.erase(stack.begin());
        stack.push_back(newest);
      }
      sent.push_back(Stack(pool_, stack));
    }
    const rpcenv::Reply reply = Send(sent, start);
    for (int e = 0; e < kEnvironments; ++e) {
      Tensor target = Stack(pool_, {255, 255, 255, 255});
      decoder_->ReadLeaf(reply, 0, e, step > 0 ? received[e].data : nullptr, target.data);
      ASSERT_EQ(std::memcmp(target.data, sent[e].data, 4 * kPlane), 0);
      received[e] = target;
    }
  }
}

TEST_F(WireTest, RefusesRepliesWhoseSizesDisagree) {
  Send({Stack(pool_, {1, 1, 1, 1}), Stack(pool_, {1, 1, 1, 1})}, true);
  const rpcenv::Reply good = Send({Stack(pool_, {1, 1, 1, 2}), Stack(pool_, {1, 1, 1, 3})}, false);
  auto broken = [&](auto&& damage) {
    rpcenv::Reply reply = good;
    damage(&reply);
    EXPECT_THROW(decoder_->Check(reply), WireError) << reply.ShortDebugString();
  };
  broken([](rpcenv::Reply* r) { r->mutable_leaves(0)->mutable_data()->pop_back(); });
  broken([](rpcenv::Reply* r) { r->clear_leaves(); });
  broken([](rpcenv::Reply* r) { r->clear_reward(); });
  broken([](rpcenv::Reply* r) { r->clear_done(); });
  broken([](rpcenv::Reply* r) { r->add_done(true); });
  broken([](rpcenv::Reply* r) { r->clear_truncated(); });
  broken([](rpcenv::Reply* r) { r->clear_game_over(); });
  broken([](rpcenv::Reply* r) { r->clear_episode_step(); });
  broken([](rpcenv::Reply* r) { r->clear_episode_return(); });
  // One flag, or three, for two environments, whose planes have as many bytes as the flags say.
  broken([](rpcenv::Reply* r) {
    r->mutable_leaves(0)->set_newest_only("\1");
    r->mutable_leaves(0)->set_data(std::string((2 * 4 - 3) * kPlane, 'x'));
  });
  broken([](rpcenv::Reply* r) {
    r->mutable_leaves(0)->set_newest_only(std::string("\1\1\0", 3));
    r->mutable_leaves(0)->set_data(std::string((2 * 4 - 6) * kPlane, 'x'));
  });
}

TEST_F(WireTest, RefusesTheNewestPlaneOfWhatHasNoPlanes) {
  for (const Shape& shape : {Shape{}, Shape{0, 2, 3}}) {
    encoder_.reset();
    decoder_.reset();
    const Tensor observation = pool_.Empty(DType::kUint8, shape);
    std::memset(observation.data, 0, observation.NumBytes());
    rpcenv::Reply reply = Send({observation}, true);
    reply.mutable_leaves(0)->set_newest_only("\1");
    EXPECT_THROW(decoder_->Check(reply), WireError) << shape.ToString();
  }
}

TEST_F(WireTest, RefusesTheNewestPlaneOfAFirstReply) {
  rpcenv::Reply reply = Send({Stack(pool_, {1, 1, 1, 1})}, true);
  reply.mutable_leaves(0)->set_newest_only("\1");
  reply.mutable_leaves(0)->set_data(std::string(kPlane, 'x'));
  Rollout rollout(2, decoder_->spec(), std::make_shared<BufferPool>());
  EXPECT_THROW(rollout.WriteEnvOutput(0, *decoder_, reply, 0, 0), WireError);
}

TEST_F(WireTest, RefusesNumbersThatAreNotFinite) {
  Tensor observation = pool_.Empty(DType::kFloat32, {3});
  auto* numbers = reinterpret_cast<float*>(observation.data);
  std::fill_n(numbers, 3, 1.0F);
  rpcenv::Reply reply = Send({observation}, true);
  for (const float number : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    numbers[1] = number;
    EXPECT_THROW(encoder_->Check(observation), WireError);
    std::memcpy(reply.mutable_leaves(0)->mutable_data()->data() + sizeof(float), &number,
                sizeof(number));
    EXPECT_THROW(decoder_->Check(reply), WireError);
  }
}

TEST_F(WireTest, RefusesRewardsAndReturnsThatAreNotFinite) {
  const rpcenv::Reply reply = Send({Stack(pool_, {1})}, true);
  for (const float number : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    rpcenv::Reply reward = reply, episode_return = reply;
    reward.set_reward(0, number);
    episode_return.set_episode_return(0, number);
    EXPECT_THROW(decoder_->Check(reward), WireError);
    EXPECT_THROW(decoder_->Check(episode_return), WireError);
  }
}

TEST_F(WireTest, AServerRefusesWhatItsClientWould) {
  const std::string long_key(kMaxSpecBytes, 'k');
  const TensorNest observation(TensorNest::Mapping{{long_key, TensorNest(Stack(pool_, {1}))}});
  StepEncoder encoder(/*num_environments=*/1);
  EXPECT_THROW(encoder.Check(observation), WireError);
}

TEST_F(WireTest, RefusesObservationsThatChange) {
  Send({Stack(pool_, {1, 1, 1, 1})}, true);
  EXPECT_THROW(encoder_->Check(Stack(pool_, {1, 1, 1})), WireError);
  EXPECT_THROW(encoder_->Check(pool_.Empty(DType::kInt8, {4, 2, 3})), WireError);

  const TensorNest leaf(Stack(pool_, {1}));
  StepEncoder encoder(/*num_environments=*/1);
  const TensorNest pair(TensorNest::Sequence{leaf, leaf});
  EXPECT_THROW(encoder_->Check(pair), WireError);
  encoder.Check(pair);
  EXPECT_THROW(encoder.Check(TensorNest(TensorNest::Sequence{leaf})), WireError);
  EXPECT_THROW(encoder.Check(TensorNest(TensorNest::Sequence{leaf, leaf, leaf})), WireError);
}

TEST(SpecTest, RoundTripsNests) {
  const SpecNest spec(SpecNest::Mapping{
      {"a", SpecNest(SpecNest::Sequence{LeafSpec{DType::kBool, {2}}, LeafSpec{DType::kInt64, {}}})},
      {"b", LeafSpec{DType::kBFloat16, {0, 3}}}});
  const SpecNest result = DecodeSpec(EncodeSpec(spec));
  result.check_same_structure(spec);
  EXPECT_TRUE(result.flatten() == spec.flatten());
}

TEST(SpecTest, RefusesWhatIsNoArray) {
  auto decode = [](int dtype, const std::vector<int64_t>& shape) {
    rpcenv::ArraySpec spec;
    spec.set_dtype(static_cast<rpcenv::DType>(dtype));
    for (int64_t dim : shape) spec.add_shape(dim);
    return DecodeArraySpec(spec);
  };
  EXPECT_THROW(decode(0, {1}), WireError);
  EXPECT_THROW(decode(99, {1}), WireError);
  EXPECT_THROW(decode(rpcenv::DTYPE_UINT8, {-1}), WireError);
  EXPECT_THROW(decode(rpcenv::DTYPE_UINT8, {int64_t{1} << 62, int64_t{1} << 62}), WireError);
  EXPECT_THROW(decode(rpcenv::DTYPE_UINT8, {0, 1 << 28, 1 << 28, 1 << 28}), WireError);
  EXPECT_THROW(decode(rpcenv::DTYPE_UINT8, {1 << 28, 0, 2}), WireError);
  EXPECT_EQ(decode(rpcenv::DTYPE_UINT8, {1 << 28, 0}).NumBytes(), 0);
  EXPECT_THROW(decode(rpcenv::DTYPE_UINT8, {1, 1, 1, 1, 1, 1, 1}), WireError);
  EXPECT_THROW(DecodeSpec(rpcenv::Spec()), WireError);
  rpcenv::Spec unsorted;
  for (const char* key : {"b", "a"}) {
    unsorted.mutable_mapping()->add_keys(key);
    *unsorted.mutable_mapping()->add_items()->mutable_array() =
        EncodeArraySpec(LeafSpec{DType::kBool, {}});
  }
  EXPECT_THROW(DecodeSpec(unsorted), WireError);
}

TEST(SpecTest, RefusesLargeStructures) {
  rpcenv::Spec spec;
  *spec.mutable_sequence()->add_items()->mutable_array() =
      EncodeArraySpec(LeafSpec{DType::kUint8, {1}});
  EXPECT_EQ(DecodeSpec(spec).num_leaves(), 1U);
  while (spec.ByteSizeLong() <= kMaxSpecBytes)
    spec.mutable_sequence()->add_items()->mutable_sequence();
  EXPECT_THROW(DecodeSpec(spec), WireError);
  rpcenv::Spec hollow;
  hollow.mutable_sequence()->add_items()->mutable_sequence();
  EXPECT_THROW(DecodeSpec(hollow), WireError);
}

TEST_F(WireTest, RolloutsShareTheirBoundaryRow) {
  auto pool = std::make_shared<BufferPool>();
  const rpcenv::Reply first = Send({Stack(pool_, {1, 1, 1, 1})}, true);
  Rollout rollout(2, decoder_->spec(), pool);
  const TensorNest output(pool_.Empty(DType::kInt64, {1, 1, 1}));
  rollout.WriteEnvOutput(0, *decoder_, first, 0, 0);
  rollout.WriteAgentOutput(0, output, 0);
  for (int row = 1; row <= 2; ++row) {
    const rpcenv::Reply reply = Send({Stack(pool_, {1, 1, row, row + 1})}, row == 1);
    rollout.WriteEnvOutput(row, *decoder_, reply, 0, row);
    rollout.WriteAgentOutput(row, output, 0);
  }
  const Tensor old_frames = rollout.Finish().sequence()[0].sequence()[0].leaf();
  EXPECT_EQ(old_frames.shape, (Shape{3, 1, 4, 2, 3}));
  rollout.StartNext();
  const TensorNest next = rollout.EnvOutput(0);
  EXPECT_NE(next.sequence()[0].leaf().data, old_frames.data);
  EXPECT_EQ(
      std::memcmp(next.sequence()[0].leaf().data, old_frames.data + 2 * 4 * kPlane, 4 * kPlane), 0);
  int64_t last_action;
  std::memcpy(&last_action, next.sequence()[8].leaf().data, sizeof(last_action));
  EXPECT_EQ(last_action, 2);
}

}  // namespace
}  // namespace torchbeast
