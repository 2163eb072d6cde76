"""The app: its pages, its window, and nothing else; every widget is drawn by a page.

Start it with `streamlit run app.py`. The pages live in `pages/`, one file each.
"""

import streamlit as st

from pages.shared import state

# Three bars, longest first. Pages get no icon of their own: the browser would fetch it from a font server.
ICON = (
    '<svg viewBox="0 0 16 16"><g fill="#0b6e6e">'
    '<rect x="1" y="2" width="14" height="3" rx="1"/>'
    '<rect x="1" y="7" width="9" height="3" rx="1"/>'
    '<rect x="1" y="12" width="5" height="3" rx="1"/></g></svg>'
)
PAGES = {
    "Explore": [
        st.Page("pages/rank.py", title="Rank", default=True),
        st.Page("pages/score_matrix.py", title="Score matrix"),
        st.Page("pages/teacher_vs_student.py", title="Teacher vs student"),
        st.Page("pages/why.py", title="What if"),
    ],
    "Understand": [
        st.Page("pages/decoder_lab.py", title="Decoder lab"),
        st.Page("pages/sinkhorn.py", title="Sinkhorn"),
        st.Page("pages/inside.py", title="Inside the model"),
        st.Page("pages/order_sensitivity.py", title="Order sensitivity"),
        st.Page("pages/prompt.py", title="Prompt"),
    ],
    "Measure": [
        st.Page("pages/latency.py", title="Latency"),
        st.Page("pages/evaluate.py", title="Evaluate"),
        st.Page("pages/frontier.py", title="Quality against latency"),
        st.Page("pages/ablations.py", title="Ablations"),
    ],
    "About": [
        st.Page("pages/about.py", title="About"),
    ],
}

page = st.navigation(PAGES, expanded=True)
st.set_page_config(page_title=f"{page.title}: single pass decoding", page_icon=ICON, layout="wide")
state.read_link()
page.run()
