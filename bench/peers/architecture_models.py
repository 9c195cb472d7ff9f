"""The networks of architectures.py: name -> function that makes (module, inputs by name, open axes by input)."""
import torch

NETWORKS = {}
# Whose outputs with random weights say nothing.
NOISY = {"transformers.vit_mae": "draws random numbers", "transformers.mobilevit": "outputs are below 1e-40",
         "transformers.superpoint": "orders scores that differ in their last bits",
         "torchvision.maskrcnn_resnet50_fpn": "orders scores that differ in their last bits",
         "torchvision.ssdlite320_mobilenet_v3_large": "orders scores that differ in their last bits",
         "timm.efficientnetv2_rw_t": "ONNX Runtime's results differ by as much without its optimisers",
         "timm.mobilenetv4_hybrid_medium": "ONNX Runtime's results differ by as much without its optimisers"}


def image_model(name, make, size=224, channels=3, batch=1):
    def network():
        return make(), {"x": torch.rand(batch, channels, size, size)}, {"x": [0, 2, 3]}
    NETWORKS[name] = network


class FirstInput(torch.nn.Module):
    """A model whose first argument, whatever its name, is x."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def timm_models():
    import timm

    def make(name):
        return lambda: FirstInput(timm.create_model(name, pretrained=False))

    sizes = {"inception_v3": 299, "vit_small_patch14_reg4_dinov2": 518, "swinv2_tiny_window8_256": 256, "maxvit_tiny_rw_256": 256,
             "halonet26t": 256, "lambda_resnet26t": 256, "mobilevit_s": 256, "fastvit_t8": 256, "eva02_tiny_patch14_224": 224,
             "edgenext_small": 256, "bat_resnext26ts": 256, "botnet26t_256": 256, "crossvit_tiny_240": 240, "sehalonet33ts": 256}
    for name in """resnet18 resnext50_32x4d seresnet50 regnety_008 mobilenetv2_100 mobilenetv3_large_100 mobilenetv4_conv_small
                   mobilenetv4_hybrid_medium efficientnet_b0 efficientnetv2_rw_t tf_efficientnet_lite0 tf_efficientnet_b0 ghostnet_100 ghostnetv2_100 convnext_tiny
                   convnextv2_atto vit_tiny_patch16_224 vit_small_patch14_reg4_dinov2 deit3_small_patch16_224
                   swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 maxvit_tiny_rw_256 coatnet_0_rw_224 levit_128s
                   efficientformer_l1 efficientvit_b0 efficientvit_m2 mobilevit_s mobilevitv2_100 mobileone_s0 fastvit_t8 poolformer_s12 mixer_s32_224
                   gmlp_s16_224 resmlp_12_224 cait_xxs24_224 xcit_tiny_12_p16_224 beit_base_patch16_224 eva02_tiny_patch14_224
                   pvt_v2_b0 twins_svt_small crossvit_tiny_240 densenet121 inception_v3 inception_v4 vgg11_bn eca_nfnet_l0
                   hrnet_w18_small dla34 edgenext_small focalnet_tiny_srf hiera_tiny_224 davit_tiny nextvit_small
                   tiny_vit_5m_224 repvit_m1 rexnet_100 ese_vovnet19b_dw resnetv2_50 lambda_resnet26t halonet26t
                   botnet26t_256 bat_resnext26ts gcresnet33ts mambaout_femto starnet_s1 shvit_s1 lcnet_050 hardcorenas_a selecsls42b
                   cspdarknet53 res2net50_26w_4s skresnet18 xception41 resnest14d volo_d1_224 visformer_tiny coat_lite_tiny
                   convit_tiny pit_ti_224 nest_tiny sequencer2d_s tnt_s_legacy_patch16_224 repvgg_a0 dpn68 mnasnet_100
                   spnasnet_100 fbnetc_100 hgnetv2_b0 inception_next_tiny rdnet_tiny csatv2 gernet_s
                   efficientnet_es tinynet_e semnasnet_075 vit_base_patch32_clip_224 naflexvit_base_patch16_gap""".split():
        image_model("timm." + name, make(name), sizes.get(name, 224))


def torchvision_models():
    import torchvision.models as models

    def plain(name, make, size):
        image_model("torchvision." + name, lambda: FirstInput(make()), size)

    for name in "alexnet squeezenet1_1 shufflenet_v2_x1_0 googlenet mnasnet0_5 swin_v2_t".split():
        plain(name, lambda name=name: getattr(models, name)(weights=None, **({"init_weights": True} if name == "googlenet" else {})), 224)
    segmentation = models.segmentation
    for name in "deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large fcn_resnet50".split():
        plain(name, lambda name=name: getattr(segmentation, name)(weights=None, weights_backbone=None), 256)
    detection = models.detection
    for name in "ssdlite320_mobilenet_v3_large fasterrcnn_mobilenet_v3_large_320_fpn retinanet_resnet50_fpn maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn fcos_resnet50_fpn".split():
        def network(name=name):
            class Detector(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.model = getattr(detection, name)(weights=None, weights_backbone=None)

                def forward(self, x):
                    return self.model([x])

            return Detector(), {"x": torch.rand(3, 320, 320)}, {"x": [1, 2]}
        NETWORKS["torchvision." + name] = network
    def video(make, shape):
        return lambda: (FirstInput(make()), {"x": torch.rand(*shape)}, {"x": [0]})
    NETWORKS["torchvision.r3d_18"] = video(lambda: models.video.r3d_18(weights=None), (1, 3, 8, 112, 112))
    NETWORKS["torchvision.s3d"] = video(lambda: models.video.s3d(weights=None), (1, 3, 16, 224, 224))
    NETWORKS["torchvision.swin3d_t"] = video(lambda: models.video.swin3d_t(weights=None), (1, 3, 8, 112, 112))

    def raft():
        class Raft(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = models.optical_flow.raft_small(weights=None)

            def forward(self, a, b):
                return self.model(a, b, num_flow_updates=3)[-1]
        return Raft(), {"a": torch.rand(1, 3, 128, 160), "b": torch.rand(1, 3, 128, 160)}, {}
    NETWORKS["torchvision.raft_small"] = raft


def ids(*shape, vocabulary=1000):
    return torch.randint(1, vocabulary, shape)


def encoders():
    import transformers as t

    small = dict(vocab_size=1000, hidden_size=256, num_hidden_layers=3, num_attention_heads=4, intermediate_size=1024)

    def encoder(name, config_name, model_name, sequence=64, batch=2, mask=True, **changes):
        def network():
            config = getattr(t, config_name)(**{**small, **changes})
            model = getattr(t, model_name)(config)
            inputs = {"input_ids": ids(batch, sequence)}
            if mask:
                inputs["attention_mask"] = torch.ones(batch, sequence, dtype=torch.int64)
                inputs["attention_mask"][1:, sequence - 9:] = 0
            return model, inputs, {key: [0, 1] for key in inputs}
        NETWORKS["transformers." + name] = network

    encoder("bert", "BertConfig", "BertModel")
    encoder("roberta", "RobertaConfig", "RobertaModel")
    encoder("electra", "ElectraConfig", "ElectraModel", embedding_size=128)
    encoder("albert", "AlbertConfig", "AlbertModel", embedding_size=64)
    encoder("mpnet", "MPNetConfig", "MPNetModel")
    encoder("deberta_v2", "DebertaV2Config", "DebertaV2Model", relative_attention=True, position_buckets=32,
            pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True)
    encoder("deberta", "DebertaConfig", "DebertaModel", relative_attention=True, pos_att_type=["p2c", "c2p"])
    encoder("roformer", "RoFormerConfig", "RoFormerModel")
    encoder("convbert", "ConvBertConfig", "ConvBertModel", embedding_size=256)
    encoder("squeezebert", "SqueezeBertConfig", "SqueezeBertModel", embedding_size=256)
    encoder("mobilebert", "MobileBertConfig", "MobileBertModel", embedding_size=64, intra_bottleneck_size=64, true_hidden_size=64)
    encoder("nystromformer", "NystromformerConfig", "NystromformerModel", num_landmarks=16, segment_means_seq_len=64)
    encoder("fnet", "FNetConfig", "FNetModel", mask=False)
    encoder("modernbert", "ModernBertConfig", "ModernBertModel", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
    encoder("nomic_like_gte", "BertConfig", "BertForSequenceClassification")
    encoder("bert_tokens", "BertConfig", "BertForTokenClassification")
    encoder("bert_masked", "BertConfig", "BertForMaskedLM")
    encoder("xlnet", "XLNetConfig", "XLNetModel", d_model=256, n_layer=2, n_head=4, d_inner=512)
    encoder("longformer", "LongformerConfig", "LongformerModel", attention_window=16, pad_token_id=0)
    encoder("big_bird", "BigBirdConfig", "BigBirdModel", attention_type="original_full")
    encoder("luke", "LukeConfig", "LukeModel", entity_vocab_size=100)
    encoder("canine", "CanineConfig", "CanineModel", sequence=128)
    encoder("esm", "EsmConfig", "EsmModel", position_embedding_type="rotary", pad_token_id=0, mask_token_id=3)
    encoder("distilbert", "DistilBertConfig", "DistilBertModel", dim=256, n_layers=3, n_heads=4, hidden_dim=1024)
    encoder("xlm_roberta_questions", "XLMRobertaConfig", "XLMRobertaForQuestionAnswering")


class Cached(torch.nn.Module):
    """A step of a decoder behind a cache: the past's keys and values are inputs, the present's outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, **past):
        from transformers.cache_utils import DynamicCache
        keys = [past[name] for name in past if name.startswith("key")]
        values = [past[name] for name in past if name.startswith("value")]
        cache = DynamicCache(list(zip(keys, values)))
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = found.past_key_values
        return (found.logits, *[tensor for layer in present.layers for tensor in (layer.keys, layer.values)])


def decoders():
    import transformers as t

    small = dict(vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
                 num_key_value_heads=2, head_dim=64, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)

    def decoder(name, config_name, model_name, heads=2, cached=True, past=24, sequence=48, **changes):
        def prefill():
            model = getattr(t, model_name)(getattr(t, config_name)(**{**small, **changes, "use_cache": False}))
            return model, {"input_ids": ids(1, sequence), "attention_mask": torch.ones(1, sequence, dtype=torch.int64)}, {
                "input_ids": [0, 1], "attention_mask": [0, 1]}
        NETWORKS[f"transformers.{name}"] = prefill
        if not cached:
            return

        def step():
            config = getattr(t, config_name)(**{**small, **changes})
            model = Cached(getattr(t, model_name)(config))
            inputs = {"input_ids": ids(1, 1), "attention_mask": torch.ones(1, past + 1, dtype=torch.int64)}
            axes = {"input_ids": [0, 1], "attention_mask": [0, 1]}
            for layer in range(config.num_hidden_layers):
                for kind in ("key", "value"):
                    inputs[f"{kind}_{layer}"] = torch.randn(1, heads, past, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
                    axes[f"{kind}_{layer}"] = [0, 2]
            return model, inputs, axes
        NETWORKS[f"transformers.{name}_step"] = step

    decoder("llama", "LlamaConfig", "LlamaForCausalLM")
    decoder("mistral", "MistralConfig", "MistralForCausalLM", sliding_window=16, cached=False)
    decoder("qwen2", "Qwen2Config", "Qwen2ForCausalLM")
    decoder("qwen3", "Qwen3Config", "Qwen3ForCausalLM")
    decoder("gemma", "GemmaConfig", "GemmaForCausalLM")
    decoder("gemma2", "Gemma2Config", "Gemma2ForCausalLM", cached=False)
    decoder("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", cached=False)
    decoder("phi", "PhiConfig", "PhiForCausalLM")
    decoder("phi3", "Phi3Config", "Phi3ForCausalLM")
    decoder("gpt2", "GPT2Config", "GPT2LMHeadModel", heads=4, n_embd=256, n_layer=2, n_head=4)
    decoder("gpt_neo", "GPTNeoConfig", "GPTNeoForCausalLM", cached=False, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]])
    decoder("gpt_neox", "GPTNeoXConfig", "GPTNeoXForCausalLM", heads=4)
    decoder("gptj", "GPTJConfig", "GPTJForCausalLM", heads=4, n_embd=256, n_layer=2, n_head=4, rotary_dim=32)
    decoder("opt", "OPTConfig", "OPTForCausalLM", heads=4, ffn_dim=512)
    decoder("bloom", "BloomConfig", "BloomForCausalLM", cached=False, n_head=4, n_layer=2)
    decoder("stablelm", "StableLmConfig", "StableLmForCausalLM")
    decoder("olmo2", "Olmo2Config", "Olmo2ForCausalLM")
    decoder("cohere", "CohereConfig", "CohereForCausalLM")
    decoder("starcoder2", "Starcoder2Config", "Starcoder2ForCausalLM")
    decoder("granite", "GraniteConfig", "GraniteForCausalLM")
    decoder("smollm3", "SmolLM3Config", "SmolLM3ForCausalLM")
    decoder("mixtral", "MixtralConfig", "MixtralForCausalLM", cached=False, num_local_experts=4)
    decoder("qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeForCausalLM", cached=False, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256, shared_expert_intermediate_size=256)
    decoder("mamba", "MambaConfig", "MambaForCausalLM", cached=False)
    decoder("mamba2", "Mamba2Config", "Mamba2ForCausalLM", cached=False, num_heads=8, head_dim=64, expand=2, n_groups=1, state_size=32, chunk_size=16)
    decoder("rwkv", "RwkvConfig", "RwkvForCausalLM", cached=False)
    decoder("xglm", "XGLMConfig", "XGLMForCausalLM", cached=False, d_model=256, num_layers=2, attention_heads=4, ffn_dim=512)


def sequence_models():
    import transformers as t

    def add(name, make):
        NETWORKS["transformers." + name] = make

    def t5_encoder():
        config = t.T5Config(vocab_size=1000, d_model=256, d_kv=64, d_ff=512, num_layers=2, num_heads=4)
        return t.T5EncoderModel(config), {"input_ids": ids(2, 40), "attention_mask": torch.ones(2, 40, dtype=torch.int64)}, {
            "input_ids": [0, 1], "attention_mask": [0, 1]}
    add("t5_encoder", t5_encoder)

    def both(name, config_name, model_name, **sizes):
        def network():
            config = getattr(t, config_name)(vocab_size=1000, use_cache=False, **sizes)
            return getattr(t, model_name)(config), {"input_ids": ids(1, 40), "decoder_input_ids": ids(1, 12)}, {
                "input_ids": [0, 1], "decoder_input_ids": [0, 1]}
        add(name, network)
    both("t5", "T5Config", "T5ForConditionalGeneration", d_model=256, d_kv=64, d_ff=512, num_layers=2, num_heads=4)
    bart = dict(d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=512, decoder_ffn_dim=512)
    both("bart", "BartConfig", "BartForConditionalGeneration", **bart)
    both("marian", "MarianConfig", "MarianMTModel", pad_token_id=0, decoder_start_token_id=0, **bart)
    both("pegasus", "PegasusConfig", "PegasusForConditionalGeneration", **bart)
    both("m2m_100", "M2M100Config", "M2M100ForConditionalGeneration", **bart)
    both("led", "LEDConfig", "LEDForConditionalGeneration", attention_window=16, **bart)

    def audio(name, config_name, model_name, inputs, **sizes):
        def network():
            made = inputs()
            axes = {key: [0, 2 if key == "input_features" else 1] for key in made}
            return getattr(t, model_name)(getattr(t, config_name)(**sizes)), made, axes
        add(name, network)
    speech = dict(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)
    def wave():
        return {"input_values": torch.randn(1, 8000)}
    audio("wav2vec2", "Wav2Vec2Config", "Wav2Vec2ForCTC", wave, **speech)
    audio("hubert", "HubertConfig", "HubertForCTC", wave, **speech)
    audio("wavlm", "WavLMConfig", "WavLMForCTC", wave, **speech)
    audio("sew_d", "SEWDConfig", "SEWDModel", wave, **speech)
    audio("unispeech_sat", "UniSpeechSatConfig", "UniSpeechSatModel", wave, **speech)
    audio("whisper_encoder", "WhisperConfig", "WhisperModel", lambda: {"input_features": torch.randn(1, 80, 3000), "decoder_input_ids": ids(1, 4)},
          d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=512,
          decoder_ffn_dim=512, vocab_size=1000, pad_token_id=0, use_cache=False)
    audio("audio_spectrogram", "ASTConfig", "ASTModel", lambda: {"input_values": torch.randn(1, 512, 128)}, max_length=512, **speech)
    audio("clap_audio", "ClapAudioConfig", "ClapAudioModel", lambda: {"input_features": torch.randn(1, 1, 1001, 64)}, depths=[1, 1, 1, 1])
    audio("encodec", "EncodecConfig", "EncodecModel", lambda: {"input_values": torch.randn(1, 1, 6000)})
    audio("mimi_dac", "DacConfig", "DacModel", lambda: {"input_values": torch.randn(1, 1, 4096)}, encoder_hidden_size=32, decoder_hidden_size=256,
          hidden_size=256)
    audio("vits", "VitsConfig", "VitsModel", lambda: {"input_ids": ids(1, 20, vocabulary=38)}, hidden_size=96, num_hidden_layers=2, ffn_dim=192,
          flow_size=96, use_stochastic_duration_prediction=False, noise_scale=0.0, upsample_initial_channel=128, spectrogram_bins=257)
    audio("wav2vec2_conformer", "Wav2Vec2ConformerConfig", "Wav2Vec2ConformerModel", wave, **speech)
    audio("wav2vec2_bert", "Wav2Vec2BertConfig", "Wav2Vec2BertModel", lambda: {"input_features": torch.randn(1, 100, 160)}, **speech)
    audio("speech_to_text", "Speech2TextConfig", "Speech2TextForConditionalGeneration",
          lambda: {"input_features": torch.randn(1, 200, 80), "decoder_input_ids": ids(1, 6)}, vocab_size=1000, use_cache=False, **bart)
    audio("patchtst", "PatchTSTConfig", "PatchTSTForPrediction", lambda: {"past_values": torch.randn(2, 96, 7)}, num_input_channels=7,
          context_length=96, prediction_length=24, patch_length=16, patch_stride=8)
    audio("patchtsmixer", "PatchTSMixerConfig", "PatchTSMixerForPrediction", lambda: {"past_values": torch.randn(2, 96, 7)},
          num_input_channels=7, context_length=96, prediction_length=24, patch_length=16, patch_stride=8)


def picture_models():
    import transformers as t

    def add(name, config_name, model_name, inputs, **sizes):
        def network():
            made = inputs()
            open_axes = {key: [0, 2, 3] if key == "pixel_values" and made[key].dim() == 4 else [0] for key in made}
            return getattr(t, model_name)(getattr(t, config_name)(**sizes)), made, open_axes
        NETWORKS["transformers." + name] = network

    def pixels(size=224):
        return lambda: {"pixel_values": torch.rand(1, 3, size, size)}

    vision = dict(hidden_size=192, num_hidden_layers=2, num_attention_heads=3, intermediate_size=768)
    add("vit", "ViTConfig", "ViTForImageClassification", pixels(), **vision)
    add("dinov2", "Dinov2Config", "Dinov2Model", pixels(), hidden_size=192, num_hidden_layers=2, num_attention_heads=3)
    add("siglip_vision", "SiglipVisionConfig", "SiglipVisionModel", pixels(), **vision)
    add("clip_vision", "CLIPVisionConfig", "CLIPVisionModelWithProjection", pixels(), **vision)
    add("clip_text", "CLIPTextConfig", "CLIPTextModelWithProjection",
        lambda: {"input_ids": ids(2, 77), "attention_mask": torch.ones(2, 77, dtype=torch.int64)}, vocab_size=1000, hidden_size=256,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)
    add("yolos", "YolosConfig", "YolosForObjectDetection", pixels(), image_size=[224, 224], **vision)
    add("segformer", "SegformerConfig", "SegformerForSemanticSegmentation", pixels(256))
    add("mobilevit", "MobileViTConfig", "MobileViTForSemanticSegmentation", pixels(256))
    add("dpt", "DPTConfig", "DPTForDepthEstimation", pixels(384), hidden_size=192, num_hidden_layers=4, num_attention_heads=3,
        intermediate_size=768, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64)
    add("detr", "DetrConfig", "DetrForObjectDetection", pixels(320), use_timm_backbone=False, use_pretrained_backbone=False,
        backbone_config=None, backbone=None, encoder_layers=2, decoder_layers=2)
    add("rt_detr", "RTDetrConfig", "RTDetrForObjectDetection", pixels(320), decoder_layers=2)
    add("d_fine", "DFineConfig", "DFineForObjectDetection", pixels(320), decoder_layers=2)
    add("deformable_detr", "DeformableDetrConfig", "DeformableDetrForObjectDetection", pixels(320), use_timm_backbone=False,
        use_pretrained_backbone=False, backbone=None, encoder_layers=2, decoder_layers=2)
    add("conditional_detr", "ConditionalDetrConfig", "ConditionalDetrForObjectDetection", pixels(320), use_timm_backbone=False,
        use_pretrained_backbone=False, backbone=None, encoder_layers=2, decoder_layers=2)
    add("upernet", "UperNetConfig", "UperNetForSemanticSegmentation", pixels(256), hidden_size=128)
    add("mask2former", "Mask2FormerConfig", "Mask2FormerForUniversalSegmentation", pixels(256), decoder_layers=2, encoder_layers=2)
    add("glpn", "GLPNConfig", "GLPNForDepthEstimation", pixels(256))
    add("swin2sr", "Swin2SRConfig", "Swin2SRForImageSuperResolution", pixels(64), depths=[2, 2], num_heads=[6, 6], embed_dim=60)
    add("vit_mae", "ViTMAEConfig", "ViTMAEModel", pixels(), **vision)
    add("superpoint", "SuperPointConfig", "SuperPointForKeypointDetection", pixels(128))
    add("vitpose", "VitPoseConfig", "VitPoseForPoseEstimation", lambda: {"pixel_values": torch.rand(1, 3, 256, 192)})
    add("vitmatte", "VitMatteConfig", "VitMatteForImageMatting", lambda: {"pixel_values": torch.rand(1, 4, 128, 128)})
    add("zoedepth", "ZoeDepthConfig", "ZoeDepthForDepthEstimation", pixels(128))
    add("depth_anything", "DepthAnythingConfig", "DepthAnythingForDepthEstimation", pixels(224))
    add("timesformer", "TimesformerConfig", "TimesformerModel", lambda: {"pixel_values": torch.rand(1, 4, 3, 112, 112)}, num_frames=4,
        image_size=112, **vision)
    add("videomae", "VideoMAEConfig", "VideoMAEModel", lambda: {"pixel_values": torch.rand(1, 8, 3, 112, 112)}, num_frames=8, image_size=112, **vision)
    add("layoutlm", "LayoutLMConfig", "LayoutLMModel", lambda: {"input_ids": ids(1, 64), "bbox": torch.randint(0, 900, (1, 64, 1)).expand(1, 64, 4).contiguous()},
        vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512)
    add("layoutlmv3", "LayoutLMv3Config", "LayoutLMv3Model",
        lambda: {"input_ids": ids(1, 64), "bbox": torch.randint(0, 900, (1, 64, 1)).expand(1, 64, 4).contiguous(), "pixel_values": torch.rand(1, 3, 224, 224)},
        vocab_size=1000, hidden_size=384, num_hidden_layers=2, num_attention_heads=6, intermediate_size=512, coordinate_size=64, shape_size=64)
    add("clip", "CLIPConfig", "CLIPModel", lambda: {"input_ids": ids(2, 20), "pixel_values": torch.rand(1, 3, 224, 224),
                                                   "attention_mask": torch.ones(2, 20, dtype=torch.int64)},
        text_config=dict(vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512), vision_config=vision)
    add("owlvit", "OwlViTConfig", "OwlViTForObjectDetection", lambda: {"input_ids": ids(2, 16), "pixel_values": torch.rand(1, 3, 224, 224),
                                                                      "attention_mask": torch.ones(2, 16, dtype=torch.int64)},
        text_config=dict(vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512),
        vision_config=dict(image_size=224, patch_size=32, **vision))
    add("clipseg", "CLIPSegConfig", "CLIPSegForImageSegmentation", lambda: {"input_ids": ids(1, 16), "pixel_values": torch.rand(1, 3, 224, 224),
                                                                           "attention_mask": torch.ones(1, 16, dtype=torch.int64)},
        text_config=dict(vocab_size=1000), vision_config=dict(image_size=224))
    add("vilt", "ViltConfig", "ViltModel", lambda: {"input_ids": ids(1, 16), "pixel_values": torch.rand(1, 3, 384, 384)}, vocab_size=1000,
        max_image_length=-1, **vision)

    def sam():
        config = t.SamConfig(vision_config=dict(hidden_size=96, num_hidden_layers=2, num_attention_heads=3, image_size=256, window_size=7,
                                                global_attn_indexes=[1], output_channels=64),
                             prompt_encoder_config=dict(hidden_size=64, image_size=256, image_embedding_size=16),
                             mask_decoder_config=dict(hidden_size=64, mlp_dim=128, num_hidden_layers=2, num_attention_heads=4, iou_head_hidden_dim=64))
        return t.SamModel(config), {"pixel_values": torch.rand(1, 3, 256, 256), "input_points": torch.rand(1, 1, 2, 2) * 255,
                                    "input_labels": torch.ones(1, 1, 2, dtype=torch.int64)}, {}
    NETWORKS["transformers.sam"] = sam


def diffusion_models():
    import diffusers as d

    def add(name, make, inputs):
        def network():
            made = inputs()
            return make(), made, {key: [0, 2, 3] if made[key].dim() == 4 else [0] for key in made if made[key].dim()}
        NETWORKS["diffusers." + name] = network

    add("unet", lambda: d.UNet2DConditionModel(block_out_channels=(64, 128, 128), layers_per_block=1, sample_size=32, in_channels=4, out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=128, attention_head_dim=4),
        lambda: {"sample": torch.randn(1, 4, 32, 32), "timestep": torch.tensor(10), "encoder_hidden_states": torch.randn(1, 20, 128)})
    add("unet_plain", lambda: d.UNet2DModel(sample_size=32, block_out_channels=(64, 128, 128, 128)),
        lambda: {"sample": torch.randn(1, 3, 32, 32), "timestep": torch.tensor(10)})

    class Part(torch.nn.Module):
        def __init__(self, model, method):
            super().__init__()
            self.model, self.method = model, method

        def forward(self, x):
            return getattr(self.model, self.method)(x)
    vae = dict(block_out_channels=(32, 64, 128), down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3, latent_channels=4)

    def decoder():
        return Part(d.AutoencoderKL(**vae), "decode")

    def encoder():
        class Moments(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = d.AutoencoderKL(**vae)

            def forward(self, x):
                return self.model.encode(x).latent_dist.parameters
        return Moments()
    add("vae_decoder", decoder, lambda: {"x": torch.randn(1, 4, 32, 32)})
    add("vae_encoder", encoder, lambda: {"x": torch.rand(1, 3, 128, 128)})
    add("dit", lambda: d.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=32, num_layers=2, sample_size=16, in_channels=4, out_channels=8),
        lambda: {"hidden_states": torch.randn(1, 4, 16, 16), "timestep": torch.tensor([10]), "class_labels": torch.tensor([3])})
    add("sd3", lambda: d.SD3Transformer2DModel(sample_size=32, num_layers=2, attention_head_dim=32, num_attention_heads=4, joint_attention_dim=64,
        caption_projection_dim=128, pooled_projection_dim=64, in_channels=16, out_channels=16),
        lambda: {"hidden_states": torch.randn(1, 16, 32, 32), "encoder_hidden_states": torch.randn(1, 20, 64),
                 "pooled_projections": torch.randn(1, 64), "timestep": torch.tensor([10.0])})
    add("controlnet", lambda: d.ControlNetModel(block_out_channels=(32, 64), layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        cross_attention_dim=64, attention_head_dim=4, norm_num_groups=16),
        lambda: {"sample": torch.randn(1, 4, 32, 32), "timestep": torch.tensor(10), "encoder_hidden_states": torch.randn(1, 20, 64),
                 "controlnet_cond": torch.rand(1, 3, 256, 256)})


for part in (timm_models, torchvision_models, encoders, decoders, sequence_models, picture_models, diffusion_models):
    part()
