"""Inside the model: where its head looks, where its readouts come from and lie, and which layer knows the ranking."""

import streamlit as st

from pages.shared import controls, errors, frame, inside_view, loaders, results, rollout_view
from pages.shared.inside_view import HEAD, LAYERS, READOUTS, VIEWS, Opened
from spd_core.attention_rollout import roll_out
from spd_core.head_attention import head_attention
from spd_core.inside import mean_cosines, mean_norms, project
from spd_core.layer_probe import probe_layers

SENTENCE = (
    "What happens between prompt and scores: where the model looks, what its states look like, when it knows the order."
)
FORMULAS = [
    r"W = \operatorname{softmax}(Q K^\top / \sqrt{d}), \qquad "
    r"\text{rollout} = \prod_{l = L}^{1} \tfrac{1}{2} (\bar W_l + I)",
    r"H - \bar H = U \Sigma V^\top, \qquad \text{points} = U_{:, 1:2} \Sigma_{1:2}",
    r"\text{read rank}_i = w_l \cdot (h_{l,i} - \bar h_l), \qquad "
    r"w_l = \arg\min_w \lVert y - X w \rVert^2 + \lambda \lVert w \rVert^2",
]


def page() -> None:
    """Pick a slate and what to look at; all but the rollout comes from one cached pass."""
    loaded = frame.open_page("Inside the model", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with errors.shown():
        result = loaders.ranking(loaded, slate)
        opened = Opened(loaded, slate, result, loaders.inside(loaded, slate))
    results.show_warnings(result)
    view = controls.pick_option("inside view", "Show", list(VIEWS), list(VIEWS.values()))
    if view == HEAD:
        inside_view.show_head(opened)
    elif view == READOUTS:
        inside_view.show_readouts(opened)
    elif view == LAYERS:
        inside_view.show_layers(opened)
    else:
        with errors.shown():
            follow(opened)
    frame.how_computed(FORMULAS, head_attention, roll_out, project, mean_norms, mean_cosines, probe_layers)


def follow(opened: Opened) -> None:
    """The rollout behind its button: it takes a pass with all states kept and a look at each layer's attention."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        steps = list(rollout_view.STEPS)
        step = int(controls.pick_option("rollout step", "Layers", steps, list(rollout_view.STEPS.values())))
        wanted = st.button("Follow the attention", type="primary", icon=":material/account_tree:")
    key = rollout_view.run_key(opened, step)
    if wanted:
        rollout_view.run(opened, step, key)
    rollout = rollout_view.kept(key)
    if rollout is None:
        st.info("Not followed yet. Press **Follow the attention**: a few seconds, layer by layer.")
    else:
        rollout_view.show(opened, rollout)


page()
