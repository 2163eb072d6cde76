"""The invented shop behind `sample_data/slates`: catalogue, shoppers, stories, tricky slates; words in TOML files."""
