# How the figures and films of the pages are made: `make figures`, or one of them: `make docs/images/popart_arms.png`.
#
# A fresh clone's files have one age: `make build`, then `make -t figures` marks what is stored as up to date.

GAMES := AirRaid Carnival DemonAttack NameThisGame Pong SpaceInvaders
SIX := MultiTask MultiTaskPopArt
MULTI := $(SIX) MultiTask3Games
PAPER := docs/reference/torchbeast_paper_curves_2019.csv
REFERENCES := $(PAPER) docs/reference/single_task_curves_2019.csv

comma := ,
commas = $(subst $() ,$(comma),$(strip $(1)))
directories = $(addprefix models/,$(1))
agents = $(patsubst %,models/%/model.tar,$(1))
curves = $(patsubst %,models/%/logs.csv,$(1))
ONE_GAME := "one game=$(call commas,$(call directories,$(GAMES)))"

FILTERS = $(PYTHON) -m torchbeast.analysis.analyze_resnet
# Figures of plot_runs go to a directory of the target's name.
SCRATCH = build/$(basename $(@F))
PLOT = $(PYTHON) -m torchbeast.analysis.plot_runs --output $(SCRATCH)
SALIENCY = $(PYTHON) -m torchbeast.saliency --savedir models --saliencydir $(SCRATCH)

# AGENT_STEPS_GAME, from which the rules of the films take agent and game.
FILMS := $(foreach game,$(GAMES),$(game)_2500000_$(game) MultiTaskPopArt_6000000_$(game) MultiTask_6000000_$(game)) \
    $(foreach game,AirRaid Carnival DemonAttack,MultiTask3Games_1200000_$(game))
PLAYS := $(FILMS:%=movies/%NoFrameskip-v4.mp4)
LOOKS := $(FILMS:%=movies/%NoFrameskip-v4.saliency.mp4)
agent = $(firstword $(subst _, ,$(1)))
game = $(lastword $(subst _, ,$(1)))NoFrameskip-v4

OBJECTS := $(GAMES:%=docs/images/report_objects_%.png)
FIGURES := $(OBJECTS) $(patsubst %,docs/images/%.png, \
    popart_arms popart_curves popart_gradients popart_statistics report_learning report_by_game_steps report_filters \
    Pong_curve atari57 Pong_attention SpaceInvaders_saliency KungFuMaster_check) \
    docs/examples/kungfumaster.html movies/Pong_saliency.gif movies/SpaceInvaders_saliency.mp4 \
    $(PLAYS) $(LOOKS) movies/MultiTaskPopArt.gif movies/Atari57PopArt.mp4

.DELETE_ON_ERROR:
.SECONDEXPANSION:

docs/images/Pong_curve.png: docs/reference/PongShallow/logs.csv $(call curves,Pong PongAttention) $(PAPER)
	$(PLOT) docs/reference/PongShallow models/Pong models/PongAttention --reference $(PAPER)
	cp $(SCRATCH)/returns_by_steps.png $@

docs/images/popart_statistics.png: $(call curves,MultiTaskPopArt)
	$(PLOT) models/MultiTaskPopArt
	cp $(SCRATCH)/popart.png $@

docs/images/popart_arms.png: $(wildcard docs/reference/arms/*/logs.csv)
	$(PYTHON) tools/popart_claims.py --output $@

docs/images/popart_curves.png: $(wildcard docs/reference/arms/*/logs.csv)
	$(PYTHON) tools/popart_claims.py --curves $@

docs/images/popart_gradients.png: $(wildcard docs/reference/arms/*/logs.csv)
	$(PYTHON) tools/popart_gradients.py --output $@

ATARI57 := $(foreach arm,raw-popart raw clipped-popart clipped,docs/reference/atari57/$(arm)-s1)
docs/images/atari57.png: $(ATARI57:%=%/logs.csv)
	$(PYTHON) -m torchbeast.analysis.compare $(ATARI57) --summary --output $@

docs/images/Pong_attention.png: $(call agents,PongAttention)
	$(PYTHON) -m torchbeast.analysis.visualize_aaa --savedir models --xpid PongAttention --first_frame 153 --num_frames 1 \
	    --save_dir $(SCRATCH)
	cp $(SCRATCH)/PongAttention/PongNoFrameskip-v4/000153.png $@

docs/images/SpaceInvaders_saliency.png movies/SpaceInvaders_saliency.mp4 &: $(call agents,SpaceInvaders MultiTaskPopArt)
	$(SALIENCY) --xpid SpaceInvaders --compare MultiTaskPopArt --env SpaceInvadersNoFrameskip-v4 \
	    --first_frame 130 --num_frames 16 --sheet docs/images/SpaceInvaders_saliency.png --movie movies/SpaceInvaders_saliency.mp4

docs/images/KungFuMaster_check.png docs/examples/kungfumaster.html &: $(call agents,Atari57PopArt)
	$(SALIENCY) --xpid Atari57PopArt --env KungFuMasterNoFrameskip-v4 --first_frame 100 --num_frames 30 --density 3 \
	    --score policy value action task:Pong task:RoadRunner --check --html docs/examples/kungfumaster.html
	cp $(SCRATCH)/Atari57PopArt/KungFuMasterNoFrameskip-v4/check.png docs/images/KungFuMaster_check.png

movies/Pong_saliency.gif: $(call agents,Pong)
	$(SALIENCY) --xpid Pong --first_frame 160 --num_frames 18 --movie $@

# The report.

docs/images/report_learning.png: $(call curves,$(GAMES)) $(REFERENCES)
	$(PLOT) $(ONE_GAME) $(REFERENCES:%=--reference %) --games $(call commas,$(GAMES))
	cp $(SCRATCH)/returns_by_steps.png $@

docs/images/report_by_game_steps.png: $(call curves,$(GAMES) $(MULTI))
	$(PLOT) $(ONE_GAME) $(call directories,$(MULTI))
	cp $(SCRATCH)/returns_by_game_steps.png $@

$(OBJECTS): docs/images/report_objects_%.png: models/%/model.tar $(call agents,$(SIX))
	$(PYTHON) -m torchbeast.saliency --savedir models --xpid $* --compare $(call commas,$(SIX)) --env $*NoFrameskip-v4 \
	    --first_frame 60 --num_frames 160 --objects $@

NAMES := $(GAMES) Pong-s2 $(MULTI)
docs/images/report_filters.png: $(call agents,$(NAMES))
	$(FILTERS) --load_path models --models $(call commas,$(foreach name,$(NAMES),$(name)=$(name))) \
	    --comp_between single_single single_multi single_multipop multi_multipop same_games time_steps untrained \
	    --metric default rebasin cka --cka_game Pong --cka_frames 96 --save_dir $(SCRATCH)
	$(FILTERS) --mode filter_comp_plot --save_dir $(SCRATCH) --plot_summary --save_figures --hide_plots
	cp $(SCRATCH)/summary_relative.png $@

# Films. The film of a game has its actions beside it.

$(PLAYS): movies/%NoFrameskip-v4.mp4: $$(call agents,$$(call agent,$$*))
	$(PYTHON) -m torchbeast.polybeast --mode record --savedir models --xpid $(call agent,$*) --env $(call game,$*) \
	    --movie $@ --movie_steps 200

$(LOOKS): movies/%NoFrameskip-v4.saliency.mp4: $$(call agents,$$(call agent,$$*))
	$(SALIENCY) --xpid $(call agent,$*) --env $(call game,$*) --precision auto --first_frame 100 --num_frames 100 --movie $@

movies/MultiTaskPopArt.gif: $(call agents,MultiTaskPopArt)
	$(PYTHON) tools/mosaic.py models/MultiTaskPopArt --steps 690 --output $@

movies/Atari57PopArt.mp4: $(call agents,Atari57PopArt)
	$(PYTHON) tools/mosaic.py models/Atari57PopArt --columns 10 --width 80 --steps 480 --output $@
