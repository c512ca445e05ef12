"""The dashboard's entry: navigation, the filters that all pages share, then the page.

Pages lie in `views/`: a folder called `pages/` beside the entry would wake Streamlit's old
discovery, which runs a page without this file and so without its filters.
"""

from pathlib import Path

import streamlit as st

from app.filters import sidebar

st.set_page_config(
    page_title="tokenmill", page_icon=Path(__file__).parent / "icon.svg", layout="wide"
)
page = st.navigation(
    [
        st.Page("views/overview.py", title="Overview", icon=":material/monitoring:", default=True),
        st.Page("views/requests.py", title="Requests", icon=":material/list_alt:"),
    ]
)
st.session_state["filters"] = sidebar()
page.run()
