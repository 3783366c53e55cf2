"""Teacher views, divergences and KL estimators. Pure; imports core only."""
